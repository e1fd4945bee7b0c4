#!/usr/bin/env bash
# survivors.sh EXPECTED COMMAND...: runs the job and counts the ranks that got their error. The launcher's own exit code
# says only that a rank died, and it may be gone before the survivors are.
set -u
expected=$1
shift
report=$(mktemp)
trap 'rm -f "$report"' EXIT
"$@" "$report"
for _ in $(seq 100); do
  found=$(grep -c '^survivor [0-9]*: ' "$report")
  [ "$found" -ge "$expected" ] && break
  sleep 0.1
done
cat "$report"
echo "$found of $expected ranks got an error"
[ "$found" -eq "$expected" ]
