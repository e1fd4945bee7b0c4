#!/usr/bin/env bash
# extract_example.sh README.md example.cpp: the first C++ block of the README, as printed.
set -euo pipefail
mkdir -p "$(dirname "$2")"
awk '/^```cpp$/ {inside = 1; next} /^```$/ {if (inside) exit} inside' "$1" > "$2"
lines=$(wc -l < "$2")
[ "$lines" -ge 10 ] && [ "$lines" -le 25 ] || { echo "the README's example has $lines lines"; exit 1; }
