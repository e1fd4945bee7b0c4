"""Whether this user on this machine can have a lab, and what to run where not."""

import os
import shlex
import shutil

from .errors import RightsError

_TOOLS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "hostname": "hostname"}


def require_rights():
    """Raise `RightsError` naming all that is missing."""
    missing = []
    if os.geteuid() != 0:
        missing.append("root rights (network namespaces and tc need them): run it as root or with sudo")
    for tool, package in _TOOLS.items():
        if not shutil.which(tool, path=_tool_path()):
            missing.append(f"the program `{tool}`: install the package {package}")
    if missing:
        raise RightsError(missing)


def _tool_path():
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def explain(error, ranks, command):
    """Return the message for a `RightsError`: what lacks, and the same command over shared memory."""
    lines = ["lab: cannot make a network here. Missing:"]
    lines += [f"  - {sentence}" for sentence in error.missing]
    shown = shlex.join(command) if command else "COMMAND"
    lines += ["Without a lab, over shared memory (times then say nothing about a network):",
              f"  mpirun --oversubscribe -np {ranks} {shown}"]
    return "\n".join(lines)
