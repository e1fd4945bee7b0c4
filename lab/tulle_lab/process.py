"""Running commands: short ones of the system, long ones of the user, and ending what is left of them."""

import os
import signal
import subprocess
import time

from .errors import Interrupted, LabError, RightsError

_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_RIGHTS_MESSAGES = ("Operation not permitted", "Permission denied", "Unknown qdisc", "qdisc kind is unknown",
                    "Operation not supported", "Unknown device type")


def system(argv, text=None):
    """Run a short system command with `text` as its input; return its output or raise what it says."""
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    said = (done.stderr or done.stdout).strip()
    if any(message in said for message in _RIGHTS_MESSAGES):
        raise RightsError([f"`{' '.join(argv)}` was refused: {said}"])
    raise LabError(f"`{' '.join(argv)}` failed: {said}")


def inside(namespace, argv):
    """Return the command that runs `argv` in a host: its network, its /etc/hosts and its host name."""
    script = 'hostname "$0" && exec "$@"'
    return ["ip", "netns", "exec", namespace, "unshare", "--uts", "sh", "-c", script, namespace, *argv]


def raise_on_signals():
    """Turn Ctrl-C, SIGTERM and SIGHUP into `Interrupted`, so that every `finally` on the way runs."""

    def handler(number, _frame):
        ignore_signals()
        raise Interrupted(number)

    for number in _ENDING_SIGNALS:
        signal.signal(number, handler)


def ignore_signals():
    """Let nothing disturb the cleaning up."""
    for number in _ENDING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def restore_signals():
    """Give a child the signals that `ignore_signals` may have taken (an ignored signal survives exec)."""
    for number in _ENDING_SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def end_group(child, grace_seconds=3.0):
    """End a child that leads its own session, and its session: politely, then for certain."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            break
        try:
            child.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            continue
    child.wait()


def processes_in(inodes, marker=None):
    """Return the ids of processes in the network namespaces `inodes` whose environment holds `marker`."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid() and _matches(entry, inodes, marker):
            found.append(int(entry))
    return found


def _matches(pid, inodes, marker):
    try:
        if os.stat(f"/proc/{pid}/ns/net").st_ino not in inodes:
            return False
        if marker is None:
            return True
        with open(f"/proc/{pid}/environ", "rb") as environment:
            return marker.encode() in environment.read()
    except OSError:
        return False


def end_processes_in(inodes, marker=None, grace_seconds=1.0):
    """End the processes that `processes_in` finds: politely, then for certain."""
    deadline = time.monotonic() + grace_seconds
    number = signal.SIGTERM
    for _ in range(1000):
        left = processes_in(inodes, marker)
        if not left:
            return
        if time.monotonic() > deadline:
            number = signal.SIGKILL
        _signal_all(left, number)
        time.sleep(0.02)
    raise LabError(f"processes {left} do not end")


def _signal_all(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
