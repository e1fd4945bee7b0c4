"""The labs that exist, one JSON file each, so that any later call finds them and only them."""

import contextlib
import fcntl
import os
import shutil

from .errors import LabError, UsageError
from .plan import Lab

DIRECTORY = os.environ.get("TULLE_LAB_STATE", "/run/tulle-lab")


def _path(name):
    return os.path.join(DIRECTORY, f"{name}.json")


@contextlib.contextmanager
def locked():
    """Hold the lock under which names and subnets are given away."""
    os.makedirs(DIRECTORY, exist_ok=True)
    with open(os.path.join(DIRECTORY, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def save(lab):
    """Write the lab's file in one step, so that a reader never sees half of it."""
    temporary = _path(lab.name) + ".new"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(lab.to_json())
    os.replace(temporary, _path(lab.name))


def marks_directory(lab):
    """Return the directory, made if need be, in which the lab's ranks leave their marks."""
    path = os.path.join(DIRECTORY, f"{lab.name}.marks")
    os.makedirs(path, exist_ok=True)
    return path


def forget(lab):
    """Remove the lab's file, and before it what a killed run left."""
    shutil.rmtree(os.path.join(DIRECTORY, f"{lab.name}.marks"), ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        os.remove(_path(lab.name))


def load(name):
    """Return the lab called `name`, or None."""
    try:
        with open(_path(name), encoding="utf-8") as file:
            return Lab.from_json(file.read())
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise LabError(f"{_path(name)} cannot be read: {error}") from error


def load_all():
    """Return all labs, by name."""
    if not os.path.isdir(DIRECTORY):
        return []
    names = sorted(entry[:-5] for entry in os.listdir(DIRECTORY) if entry.endswith(".json"))
    return [lab for lab in map(load, names) if lab]


def find(name):
    """Return the lab called `name`; with no name, the only one there is."""
    if name:
        lab = load(name)
        if not lab:
            raise UsageError(f"--name {name}: there is no such lab; {_existing()}")
        return lab
    labs = load_all()
    if len(labs) != 1:
        raise UsageError(f"--name is needed: {_existing()}")
    return labs[0]


def _existing():
    names = ", ".join(lab.name for lab in load_all())
    return f"existing: {names}" if names else "no lab exists, make one with `lab up`"


def free_subnet():
    """Return a K for which no lab has 10.77.K.0/24; call it under the lock."""
    taken = {lab.subnet for lab in load_all()}
    for subnet in range(256):
        if subnet not in taken:
            return subnet
    raise LabError("all 256 subnets are taken; `lab status` lists the labs")


def this_process():
    """Return what identifies this process beyond the reuse of its id."""
    return {"pid": os.getpid(), "started": _start_time(os.getpid())}


def owner_is_dead(lab):
    """Tell whether the lab belongs to a `lab with` that is gone; labs of `lab up` have no owner."""
    return lab.owner is not None and _start_time(lab.owner["pid"]) != lab.owner["started"]


def _start_time(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return None
