#!/usr/bin/env bash
# pkg_config.sh prefix directory compiler shared|static: a user's program built by hand.
set -euo pipefail
PKG_CONFIG_PATH=$(dirname "$(find "$1" -name tulle.pc)")
export PKG_CONFIG_PATH
program=$2/pkg_config_example_$4
read -ra flags < <(pkg-config --cflags tulle)
if [ "$4" = shared ]; then
  read -ra libraries < <(pkg-config --libs tulle)
  libraries+=("-Wl,-rpath,$(dirname "$PKG_CONFIG_PATH")")
else
  read -ra libraries < <(pkg-config --static --libs tulle | sed 's/-ltulle\b/-l:libtulle.a/')
fi
"$3" "${flags[@]}" "$2/example.cpp" "${libraries[@]}" -o "$program"
"$program" | grep 'index 7: 4'
[ "$4" = static ] || ldd "$program" | grep 'libtulle\.so\.0\.1 => /'
