"""Running a command on the hosts: by Open MPI, by MPICH, or one plain process per rank (also for PyTorch); or one beside
them that starts what it likes there.

Each launcher turns (lab, ranks, command) into processes; what all share (time limits, tries, ending what is left) is in
`run_command`.
"""

import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass, field

from . import store
from .errors import EXIT_LAB, EXIT_TIMEOUT, LabError, UsageError
from .plan import INTERFACE, place_ranks
from .process import end_group, end_processes_in, inside, restore_signals, system

PYTHON = "/usr/bin/python3"
_HERE = os.path.dirname(os.path.realpath(__file__))
_AGENT = os.path.join(_HERE, "agent.sh")
_RANK = os.path.join(_HERE, "rank.sh")
_POLL_SECONDS = 0.02

# A warning about a race between mpirun and its own child that harms nothing.
_NOISE = re.compile(rb"plm:rsh: Warning: setpgid\(")


@dataclass
class Job:
    """What to run and within which bounds."""

    command: list
    ranks: int
    launcher: str = "openmpi"
    flags: list = field(default_factory=list)
    timeout_seconds: float = None
    launch_seconds: float = 30.0
    retries: int = 2


class LaunchHung(Exception):
    """Not all ranks started in the time a launch may take."""


def run_command(lab, job):
    """Run the job's command on the lab's hosts and return its exit code; nothing of it is left running."""
    start = _LAUNCHERS[job.launcher]
    _check_binary(job)
    for attempt in range(job.retries + 1):
        try:
            return _run_once(lab, job, start)
        except LaunchHung:
            left = job.retries - attempt
            print(f"lab: the launch hung for {job.launch_seconds:g} s, "
                  + (f"trying again ({left} left)" if left else "giving up"), file=sys.stderr)
    return EXIT_LAB


def _run_once(lab, job, start):
    identity = f"TULLE_LAB_RUN={uuid.uuid4().hex}"
    with tempfile.TemporaryDirectory(dir=store.marks_directory(lab)) as marks, contextlib.ExitStack() as cleanup:
        cleanup.callback(end_processes_in, set(lab.inodes.values()), identity)
        environment = _environment(lab, identity, marks)
        group = cleanup.enter_context(_Group())
        start(group, lab, job, environment)
        return _wait(group, job, marks)


def _environment(lab, identity, marks):
    name, value = identity.split("=")
    return {
        **os.environ,
        name: value,
        "TULLE_LAB": json.dumps(lab.describe(), separators=(",", ":")),
        "TULLE_LAB_INTERFACE": INTERFACE,
        "TULLE_LAB_MARKS": marks,
    }


def _wait(group, job, marks):
    begun = time.monotonic()
    launched = False
    while (code := group.poll()) is None:
        elapsed = time.monotonic() - begun
        launched = launched or not group.marks_expected or len(os.listdir(marks)) >= group.marks_expected
        if job.timeout_seconds and elapsed > job.timeout_seconds:
            print(f"lab: ended after --timeout {job.timeout_seconds:g} s", file=sys.stderr)
            return EXIT_TIMEOUT
        if not launched and elapsed > job.launch_seconds:
            raise LaunchHung
        time.sleep(_POLL_SECONDS)
    return code


class _Group:
    """Processes of one run, each leading a session; leaving the context ends them and passes on their last output."""

    def __init__(self):
        self.children = []
        self.relays = []
        self.marks_expected = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in self.children:
            end_group(child)
        for relay in self.relays:
            relay.join(timeout=2)

    def start(self, argv, environment, **files):
        """Start one process."""
        try:
            child = subprocess.Popen(argv, env=environment, start_new_session=True, preexec_fn=restore_signals, **files)
        except OSError as error:
            raise LabError(f"cannot start {argv[0]}: {error}") from error
        self.children.append(child)
        return child

    def relay(self, source, target, edit):
        """Pass the lines of `source` on to `target` as `edit` returns them."""
        thread = threading.Thread(target=_copy_lines, args=(source, target, edit), daemon=True)
        thread.start()
        self.relays.append(thread)

    def poll(self):
        """Return None while all is well, the code of the first failure, or 0 when all have ended well."""
        codes = [child.poll() for child in self.children]
        for code in codes:
            if code:
                return code if code > 0 else 128 - code
        return None if None in codes else 0


def _copy_lines(source, target, edit):
    with source, contextlib.suppress(BrokenPipeError):
        for line in source:
            target.buffer.write(edit(line))
            target.flush()


def _start_openmpi(group, lab, job, environment):
    placement = place_ranks(job.ranks, lab.hosts)
    # By the environment and not by --mca, so that the user's --mca wins.
    environment.update({f"OMPI_MCA_{name}": value for name, value in {
        "plm_rsh_agent": _AGENT,
        "plm_rsh_no_tree_spawn": "1",
        "pml": "ob1",
        "btl": "tcp,self,vader" if job.ranks > len(lab.hosts) else "tcp,self",
        "btl_tcp_if_include": lab.network,
        "oob_tcp_if_include": lab.network,
        "mpi_yield_when_idle": "1",
        "hwloc_base_binding_policy": "none",
    }.items()})
    environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    argv = [find_mpirun("openmpi"), "-np", str(job.ranks), "--host", _host_list(placement)]
    for name in ("TULLE_LAB", "TULLE_LAB_INTERFACE", "TULLE_LAB_MARKS", "TULLE_LAB_RUN"):
        argv += ["-x", name]
    _start_mpirun(group, lab, [*argv, *job.flags, _RANK, *job.command], job.ranks, environment)


def _start_mpich(group, lab, job, environment):
    placement = place_ranks(job.ranks, lab.hosts)
    # All hosts are one machine to UCX, which would talk through its memory; libfabric needs its provider named.
    environment.update(UCX_TLS="tcp,self", UCX_NET_DEVICES=INTERFACE, FI_PROVIDER="tcp", FI_TCP_IFACE=INTERFACE)
    environment.update(_ucx_preload())
    argv = [find_mpirun("mpich"), "-launcher", "ssh", "-launcher-exec", _AGENT, "-iface", INTERFACE,
            "-hosts", _host_list(placement), "-np", str(job.ranks), "-genvall"]
    _start_mpirun(group, lab, [*argv, *job.flags, _RANK, *job.command], job.ranks, environment)


def _ucx_preload():
    """Return the environment that preloads mpich_ucx.c, built on first use; without a compiler, none."""
    source = os.path.join(_HERE, "mpich_ucx.c")
    library = os.path.join(store.DIRECTORY, "mpich_ucx.so")
    if not os.path.exists(library) or os.path.getmtime(library) < os.path.getmtime(source):
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if not compiler:
            print("lab: note: without a C compiler MPICH is slow and may hang in MPI_Finalize; give --timeout",
                  file=sys.stderr)
            return {}
        system([compiler, "-O2", "-shared", "-fPIC", "-o", f"{library}.{os.getpid()}", source, "-ldl"])
        os.replace(f"{library}.{os.getpid()}", library)
    return {"TULLE_LAB_PRELOAD": library}


def _start_mpirun(group, lab, argv, ranks, environment):
    group.marks_expected = ranks
    child = group.start(inside(lab.hosts[0].namespace, argv), environment, stderr=subprocess.PIPE)
    group.relay(child.stderr, sys.stderr, lambda line: b"" if _NOISE.search(line) else line)


def _host_list(placement):
    names = [host.namespace for host in placement]
    return ",".join(f"{name}:{names.count(name)}" for name in dict.fromkeys(names))


def _start_each(group, lab, job, environment):
    port = random.randrange(20000, 30000)
    placement = place_ranks(job.ranks, lab.hosts)
    for rank, host in enumerate(placement):
        extra = _torch_environment(lab, placement, rank, port) if job.launcher == "torch" else {"RANK": str(rank)}
        command = [PYTHON, *job.command] if job.launcher == "torch" and job.command[0].endswith(".py") else job.command
        child = group.start(inside(host.namespace, command), {**environment, **extra}, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        prefix = f"[{rank}] ".encode()
        group.relay(child.stdout, sys.stdout, prefix.__add__)
        group.relay(child.stderr, sys.stderr, prefix.__add__)


def _start_outside(group, _lab, job, environment):
    group.start(job.command, environment)


def _torch_environment(lab, placement, rank, port):
    host = placement[rank]
    first = placement.index(host)
    return {
        "MASTER_ADDR": lab.hosts[0].address,
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "WORLD_SIZE": str(len(placement)),
        "LOCAL_RANK": str(rank - first),
        "LOCAL_WORLD_SIZE": str(placement.count(host)),
        "GROUP_RANK": str(host.index),
        "GLOO_SOCKET_IFNAME": INTERFACE,
        "TP_SOCKET_IFNAME": INTERFACE,
        "NCCL_SOCKET_IFNAME": INTERFACE,
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


_LAUNCHERS = {"openmpi": _start_openmpi, "mpich": _start_mpich, "torch": _start_each, "each": _start_each,
              "outside": _start_outside}

_MPIRUN_NAMES = {
    "openmpi": ("mpirun.openmpi", "orterun", "mpirun"),
    "mpich": ("mpirun.mpich", "mpiexec.hydra", "mpirun"),
}
_MPIRUN_WORDS = {"openmpi": "Open MPI", "mpich": "HYDRA"}
_LIBRARIES = {"openmpi": "libmpi.so.40", "mpich": "libmpich.so"}


def find_mpirun(kind):
    """Return the path of the launcher of this MPI, or raise what to install."""
    for name in _MPIRUN_NAMES[kind]:
        path = shutil.which(name)
        if path and ("." in name or _says(path, kind)):
            return path
    raise LabError(f"--mpi {kind}: no mpirun of it found (tried {', '.join(_MPIRUN_NAMES[kind])}); install it")


def _says(path, kind):
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    return _MPIRUN_WORDS[kind] in said or ("OpenRTE" in said and kind == "openmpi")


def _check_binary(job):
    """Refuse a binary of the other MPI: its ranks would not find each other and each run alone."""
    path = shutil.which(job.command[0])
    if not path and not job.command[0].endswith(".py"):
        raise UsageError(f"COMMAND: '{job.command[0]}' is not an executable file")
    if job.launcher not in _LIBRARIES:
        return
    linked = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    for kind, library in _LIBRARIES.items():
        if kind != job.launcher and library in linked and _LIBRARIES[job.launcher] not in linked:
            raise UsageError(f"--mpi {job.launcher}: '{job.command[0]}' is built with {kind}; use --mpi {kind}")
