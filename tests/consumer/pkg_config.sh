#!/usr/bin/env bash
# pkg_config.sh prefix directory compiler: a user's program built by hand.
set -euo pipefail
PKG_CONFIG_PATH=$(dirname "$(find "$1" -name tulle.pc)")
export PKG_CONFIG_PATH
read -ra flags < <(pkg-config --cflags tulle)
read -ra libraries < <(pkg-config --libs tulle)
"$3" "${flags[@]}" "$2/example.cpp" "${libraries[@]}" -o "$2/pkg_config_example"
"$2/pkg_config_example" | grep -q 'index 7: 4'
