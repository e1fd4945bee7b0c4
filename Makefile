# The front door. Each target sets up what it needs: packages from scripts/packages.txt, then a build directory.
.PHONY: demo test build command setup clean format tidy fuzz storm bench bench-full bench-check smpi python

PRESET := release
NPROC := $(shell nproc)

build: setup
	cmake --preset $(PRESET)
	cmake --build --preset $(PRESET)

setup:
	@scripts/setup

# The command alone, without the tests and what else there is.
command: setup
	cmake --preset $(PRESET)
	cmake --build --preset $(PRESET) --target tulle_command

# A virtual environment with the Python package: build/python/bin/python.
python: setup
	scripts/python

demo: command
	cmake --build --preset $(PRESET) --target tulle_train_nn
	scripts/demo

# TORCH=2.13.0 also tests tulle.torch with that version, from PyPI.
TORCH :=
test: setup
	TORCH="$(TORCH)" scripts/test

# Each fuzzer for so many seconds; or FUZZ_RUNS=100M: so many inputs in all, which goes on where it was ended.
FUZZ_SECONDS := 60
FUZZ_RUNS :=
fuzz: setup
	scripts/fuzz $(if $(FUZZ_RUNS),--executions $(FUZZ_RUNS),-max_total_time=$(FUZZ_SECONDS))

# A million simulated jobs that lose ranks; ended and started again it goes on.
storm: setup
	scripts/storm

bench: command
	scripts/bench short

bench-full: command
	scripts/bench full

bench-check: build
	scripts/bench-check

smpi:
	@scripts/setup libsimgrid-dev
	scripts/smpi

format: setup
	git ls-files '*.cpp' '*.hpp' | xargs clang-format -i

tidy: setup
	scripts/tidy all

clean:
	rm -rf build
