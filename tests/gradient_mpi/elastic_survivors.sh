#!/usr/bin/env bash
# elastic_survivors.sh VICTIM COMMAND...: runs the job of four ranks and compares what the survivors of VICTIM report. The
# launcher's own exit code says only that a rank died, and it may be gone before the survivors are.
set -u
victim=$1
shift
report=$(mktemp)
trap 'rm -f "$report"' EXIT
"$@" "$victim" "$report"
for _ in $(seq 600); do
  [ "$(grep -c '^survivor [0-9]*: ' "$report")" -ge 3 ] && break
  sleep 0.1
done
cat "$report"
[ "$(cut -d: -f1 "$report" | sort -u | wc -l)" -eq 3 ] || { echo "not three survivors came to an end"; exit 1; }
[ "$(cut -d: -f2 "$report" | sort -u | wc -l)" -eq 1 ] || { echo "survivors differ"; exit 1; }
grep -q ": 20 steps, model [0-9a-f]*, 3 ranks, lost $victim\$" "$report" || { echo "somebody else was lost"; exit 1; }
