#!/usr/bin/env bash
# find_package.sh prefix directory compiler static|shared|linear: a CMake project of a user's. Only who uses
# tulle::linear needs LibArchive; the others find none.
set -euo pipefail
project=$2/find_package_$4
rm -rf "$project" && mkdir -p "$project"
cp "$2/example.cpp" "$project/"
case $4 in
  static) components= targets=tulle::tulle ;;
  shared) components= targets=tulle::shared ;;
  linear) components='COMPONENTS linear' targets='tulle::tulle tulle::linear' ;;
esac
cat > "$project/version.cpp" <<'CPP'
#include <tulle/version.hpp>
static_assert(TULLE_VERSION_MAJOR * 1000 + TULLE_VERSION_MINOR * 10 + TULLE_VERSION_PATCH >= 10);
CPP
if [ "$4" = linear ]; then
  cat >> "$project/version.cpp" <<'CPP'
#include <tulle/base/positional_reader.hpp>
#include <tulle/linear/csr_file.hpp>
#include <tulle/linear/model.hpp>
std::size_t vectors_of_model(const char* path) { return tulle::linear::load_model(*tulle::open_file(path)).vectors(); }
CPP
fi
cat > "$project/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(consumer CXX)
find_package(tulle 0.1 REQUIRED $components)
add_executable(example example.cpp version.cpp)
target_link_libraries(example PRIVATE $targets)
CMAKE
without=(-DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON)
[ "$4" = linear ] || without+=(-DCMAKE_DISABLE_FIND_PACKAGE_LibArchive=ON)
cmake -S "$project" -B "$project/build" -DCMAKE_PREFIX_PATH="$1" -DCMAKE_CXX_COMPILER="$3" "${without[@]}"
cmake --build "$project/build"
"$project/build/example" | tee "$project/output"
grep -q 'index 7: 4' "$project/output"

is_linked=no
libraries=$(ldd "$project/build/example")  # not into a pipe, which grep may close before ldd is done
grep -q 'libtulle\.so\.0\.1 => .*/lib' <<< "$libraries" && is_linked=yes
[ $is_linked = "$([ "$4" = shared ] && echo yes || echo no)" ] || { echo "linked with libtulle.so: $is_linked"; exit 1; }
