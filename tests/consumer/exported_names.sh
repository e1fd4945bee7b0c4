#!/usr/bin/env bash
# exported_names.sh prefix: libtulle.so exports what public headers declare, and not what is inside.
set -euo pipefail
library=$(find "$1" -name libtulle.so)
names=$(nm -DC --defined-only "$library" | cut -d' ' -f3-)
for name in 'tulle::Error::Error(' 'tulle::registry()' 'typeinfo for tulle::Error'; do
  grep -qF "$name" <<< "$names" || { echo "$name is not exported"; exit 1; }
done
for name in 'tulle::algorithms::' 'tulle::printable(' 'tulle::merge_many' 'tulle::Ledger' 'hwy::'; do
  if grep -F "$name" <<< "$names"; then
    echo "$name is exported"
    exit 1
  fi
done
