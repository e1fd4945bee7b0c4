#!/usr/bin/env bash
# find_package.sh prefix directory compiler: a CMake project of a user's.
set -euo pipefail
project=$2/find_package
rm -rf "$project" && mkdir -p "$project"
cp "$2/example.cpp" "$project/"
cat > "$project/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(consumer CXX)
find_package(tulle 0.1 REQUIRED)
add_executable(example example.cpp)
target_link_libraries(example PRIVATE tulle::tulle)
CMAKE
cmake -S "$project" -B "$project/build" -DCMAKE_PREFIX_PATH="$1" -DCMAKE_CXX_COMPILER="$3"
cmake --build "$project/build"
"$project/build/example" | tee "$project/output"
grep -q 'index 7: 4' "$project/output"
