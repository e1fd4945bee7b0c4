# The front door. Each target sets up what it needs: packages from scripts/packages.txt, then a build directory.
.PHONY: demo test build setup clean format tidy fuzz bench bench-full bench-check smpi

PRESET := release
NPROC := $(shell nproc)

build: setup
	cmake --preset $(PRESET)
	cmake --build --preset $(PRESET)

setup:
	@scripts/setup

demo: build
	scripts/demo

test: setup
	scripts/test

FUZZ_SECONDS := 60
fuzz: setup
	scripts/fuzz -max_total_time=$(FUZZ_SECONDS)

bench: build
	scripts/bench short

bench-full: build
	scripts/bench full

bench-check: build
	scripts/bench-check

smpi:
	@scripts/setup libsimgrid-dev
	scripts/smpi

format:
	git ls-files '*.cpp' '*.hpp' | xargs clang-format -i

tidy: build
	git ls-files 'src/*.cpp' | xargs clang-tidy -p build/release --quiet

clean:
	rm -rf build
