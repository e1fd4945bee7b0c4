#!/usr/bin/env bash
# unknown_component.sh prefix directory compiler kind: a project that asks for a component that there is not is told which.
set -euo pipefail
project=$2/unknown_component
rm -rf "$project" && mkdir -p "$project"
cat > "$project/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(consumer CXX)
find_package(tulle 0.1 REQUIRED COMPONENTS frobnicate)
CMAKE
said=$(cmake -S "$project" -B "$project/build" -DCMAKE_PREFIX_PATH="$1" -DCMAKE_CXX_COMPILER="$3" 2>&1) && { echo "was found"; exit 1; }
grep -q "'frobnicate' is no component of tulle: there are linear, mpi and nn" <<< "$said" || { echo "$said"; exit 1; }
