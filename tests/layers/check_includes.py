#!/usr/bin/python3
"""Fails where a layer includes one to its right, or where a public header hides what it declares from libtulle.so."""
import pathlib
import re
import sys

# Each layer and what it may include besides itself.
LAYERS = {
    "base": set(),
    "stream": {"base"},
    "select": {"base", "stream"},
    "codec": {"base", "stream"},
    "comm": {"base", "stream", "codec"},
    "collectives": {"base", "stream", "select", "codec", "comm"},
    "tune": {"base", "stream", "select", "codec", "comm", "collectives"},
    "gradient": {"base", "stream", "select", "codec", "comm", "collectives", "tune"},
    "server": {"base", "stream", "select", "codec", "comm", "collectives", "tune", "gradient"},
    "linear": {"base", "stream", "select", "codec", "comm", "collectives", "tune", "gradient", "server"},
    "nn": {"base", "stream", "select", "codec", "comm", "collectives", "tune", "gradient", "server"},
    "measure": {"base", "stream", "select", "codec", "comm", "collectives", "tune", "gradient", "server", "linear"},
    "python": {"base", "stream", "select", "codec", "comm", "collectives", "tune", "gradient", "server", "linear", "measure"},
    "cli": {"base", "stream", "select", "codec", "comm", "collectives", "tune", "gradient", "server", "linear", "nn", "measure"},
}
INCLUDE = re.compile(r'^\s*#include\s+"(?:tulle/)?([a-z_]+)/[^"]*"', re.MULTILINE)
# Objects are compiled with hidden visibility; cmake/tulle_shared.cmake says why.
PUBLIC = re.compile(r"^#pragma GCC visibility push\(default\)\nnamespace tulle.*^#pragma GCC visibility pop$",
                    re.MULTILINE | re.DOTALL)


def layer_of(path: pathlib.Path, root: pathlib.Path) -> str | None:
    parts = path.relative_to(root).parts
    if parts[0] == "python":
        return "python"
    name = parts[2] if parts[:2] == ("include", "tulle") else parts[1] if parts[0] == "src" else None
    return name if name in LAYERS else None


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    checked = violations = 0
    for path in sorted([*root.glob("include/**/*.hpp"), *root.glob("src/**/*.[ch]pp"),
                        *root.glob("python/src/*.[ch]pp")]):
        layer = layer_of(path, root)
        if layer is None:
            continue
        checked += 1
        for target in INCLUDE.findall(path.read_text(encoding="utf-8")):
            if target in LAYERS and target != layer and target not in LAYERS[layer]:
                print(f"{path.relative_to(root)}: {layer} must not include {target}")
                violations += 1
    for path in sorted(root.glob("include/**/*.hpp")):
        text = path.read_text(encoding="utf-8")
        if "namespace tulle" in text and not PUBLIC.search(text):
            print(f"{path.relative_to(root)}: its namespace is not between the pragmas that make names visible")
            violations += 1
    print(f"{checked} files checked, {violations} violations")
    return 1 if violations or checked < 30 else 0


if __name__ == "__main__":
    sys.exit(main())
