#!/usr/bin/env bash
# survivors.sh EXPECTED COMMAND...: runs the job and counts the ranks that got their error. The launcher's own exit code
# says only that a rank died.
set -u
expected=$1
shift
output=$("$@" 2>&1)
found=$(grep -c '^survivor [0-9]*: ' <<<"$output")
echo "$output"
echo "$found of $expected ranks got an error"
[ "$found" -eq "$expected" ]
