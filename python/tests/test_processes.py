"""Ranks as processes over TCP: the environment, deaths, forks, Ctrl-C, leaks."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
from processes import Job, free_port, run_ranks

import tulle


def test_ranks_of_the_environment_sum_and_have_the_same_bits():
    reports = run_ranks(
        4,
        """
rank = int(os.environ["TULLE_RANK"])
mine = np.random.default_rng(rank).standard_normal(200_000).astype(np.float32)
all_of_them = [np.random.default_rng(r).standard_normal(200_000) .astype(np.float32) for r in range(4)]
dense = tulle.allreduce(mine.copy())
selected = tulle.select(mine, density=0.01).stream
sparse = tulle.allreduce(selected)
close = np.allclose(dense, np.sum(all_of_them, axis=0), atol=1e-5)
import zlib
report(close=bool(close), dense=zlib.crc32(dense), sparse=zlib.crc32(sparse.to_dense()), nnz=sparse.to_sparse().nnz,
       sent=sparse.outcome.bytes_sent)
""",
    )
    assert all(each["close"] for each in reports)
    assert len({(each["dense"], each["sparse"], each["nnz"]) for each in reports}) == 1
    assert 2000 < reports[0]["nnz"] <= 8000 and reports[0]["sent"] > 0


def test_a_taken_port_beside_torchs_is_explained(monkeypatch):
    for name in ("TULLE_ADDRESS", "TULLE_RANK", "TULLE_SIZE"):
        monkeypatch.delenv(name, raising=False)
    port = free_port()
    for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port - 1000, "RANK": 0, "WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(tulle.SystemError) as caught:
            tulle.connect(deadline=1)
    assert str(port) in str(caught.value) and f"1000 above MASTER_PORT {port - 1000}" in str(caught.value)


def test_a_killed_process_is_named_by_the_others():
    source = """
comm = tulle.connect()
tulle.allreduce(np.ones(10), comm=comm)
report(ready=True)
if comm.rank == 1:
    time.sleep(100)
begin = time.monotonic()
error = error_of(lambda: tulle.allreduce(np.ones(100_000), comm=comm, deadline=90))
report(error=error, seconds=time.monotonic() - begin)
"""
    with Job(3, source) as job:
        for rank in range(3):
            job.line(rank)
        time.sleep(0.2)
        job.processes[1].kill()
        for rank in (0, 2):
            told = job.end(rank)
            assert told["seconds"] < 60, told  # a death is seen at once, not by the deadline
            assert told["error"]["kind"] == "peer_failed", told
            assert told["error"]["rank"] == rank and "rank 1" in told["error"]["text"], told
            assert told["error"]["peer"] is not None, told


def test_ctrl_c_ends_a_wait_and_the_other_ranks_are_told():
    source = """
comm = tulle.connect()
comm.barrier()
report(ready=True)
try:
    if comm.rank == 0:
        tulle.allreduce(tulle.Stream([1], [1.0], 100), comm=comm)
    else:
        error = error_of(lambda: comm.channel(1).barrier())
        report(error=error)
except KeyboardInterrupt:
    broken = error_of(comm.barrier)
    report(interrupted=True, broken=broken["kind"])
"""
    with Job(2, source) as job:
        job.line(0), job.line(1)
        time.sleep(0.3)
        job.processes[0].send_signal(signal.SIGINT)
        assert job.end(0) == {"interrupted": True, "broken": "broken"}
        told = job.end(1)["error"]
        assert (told["kind"], told["peer"]) == ("peer_failed", 0) and "KeyboardInterrupt" in told["text"]


def test_a_request_that_was_interrupted_can_be_waited_for_again():
    source = """
comm = tulle.connect()
comm.barrier()
if comm.rank == 0:
    request = tulle.iallreduce(tulle.Stream([1], [1.0], 100), comm=comm)
    try:
        report(ready=True)  # from here on the signal may come
        request.wait()
    except KeyboardInterrupt:
        report(interrupted=True)
    report(value=float(request.wait().values[0]))
else:
    report(ready=True)
    sys.stdin.readline()
    report(value=float(tulle.iallreduce(tulle.Stream([1], [2.0], 100), comm=comm).wait().values[0]))
"""
    with Job(2, source) as job:
        job.line(0), job.line(1)
        job.processes[0].send_signal(signal.SIGINT)
        assert job.line(0) == {"interrupted": True}
        job.tell(1)
        assert job.end(0) == job.end(1) == {"value": 3.0}


def test_a_script_that_raises_tells_the_others_why():
    source = """
comm = tulle.connect()
part = comm.split(0)
tulle.allreduce(np.ones(3), comm=part)
if comm.rank == 1:
    raise KeyError("no such file")
report(**error_of(lambda: tulle.allreduce(np.ones(3), comm=part)))
"""
    with Job(2, source) as job:
        told = job.end(0)
        # A call that comes after the news finds the communicator broken; its text has the same reason.
        assert (told["kind"], told["peer"]) in (("peer_failed", 1), ("broken", None)), told
        assert "rank 1: its script raised KeyError: 'no such file'" in told["text"], told


def test_a_script_that_exits_is_not_waited_for():
    source = """
comm = tulle.connect()
tulle.allreduce(np.ones(10), comm=comm)
if comm.rank == 1:
    report(left=True)
    sys.exit(0)
begin = time.monotonic()
error = error_of(lambda: tulle.allreduce(np.ones(10), comm=comm, deadline=90))
report(seconds=time.monotonic() - begin, **error)
"""
    with Job(3, source) as job:
        assert job.end(1) == {"left": True}
        for rank in (0, 2):
            told = job.end(rank)
            assert told["kind"] == "peer_failed" and told["seconds"] < 60, told
            assert "left the job" in told["text"] and "rank 1" in told["text"], told


def test_ctrl_c_ends_connecting():
    source = """
report(ready=True)
try:
    tulle.connect()
except KeyboardInterrupt:
    report(interrupted=True)
    os._exit(0)
"""
    with Job(2, source) as job:
        job.processes[1].kill()
        job.line(0)
        time.sleep(0.3)
        job.processes[0].send_signal(signal.SIGINT)
        assert job.end(0) == {"interrupted": True}


def test_ctrl_c_ends_connecting_by_a_rendezvous_of_ones_own():
    source = """
import threading

class Alone:
    rank, size = 0, 2

    def allgather(self, mine):
        report(is_main=threading.current_thread() is threading.main_thread())
        return [mine, mine]  # and nobody connects

try:
    tulle.connect(rendezvous=Alone(), deadline=90)
except KeyboardInterrupt:
    report(interrupted=True)
"""
    with Job(1, source) as job:
        assert job.line(0) == {"is_main": True}
        time.sleep(0.3)
        began = time.monotonic()
        job.processes[0].send_signal(signal.SIGINT)
        assert job.end(0) == {"interrupted": True} and time.monotonic() - began < 30


def test_strangers_are_refused_and_a_line_says_so(tmp_path):
    port = free_port()
    source = """
rank = int(os.environ["TULLE_RANK"])

class Files:
    size = 2

    def __init__(self):
        self.rank = rank

    def allgather(self, mine):
        with open(f"PATH/{rank}.new", "wb") as file:
            file.write(mine)
        os.rename(f"PATH/{rank}.new", f"PATH/{rank}")
        while not os.path.exists(f"PATH/{1 - rank}"):
            time.sleep(0.01)
        report(met=True)
        if rank == 1:
            sys.stdin.readline()  # rank 0 waits for it
        return [open(f"PATH/{each}", "rb").read() for each in range(2)]

comm = tulle.connect(rendezvous=Files(), ports="PORT" if rank == 0 else "")
report(sum=float(tulle.allreduce(np.ones(1), comm=comm)[0]))
"""
    with Job(2, source.replace("PATH", str(tmp_path)).replace("PORT", str(port))) as job:
        job.line(0), job.line(1)
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", port), timeout=30) as stranger:
                stranger.sendall(b"GET / HTTP/1.0\r\n\r\n" + bytes(300))
                with contextlib.suppress(ConnectionError):
                    assert stranger.recv(1) == b""  # nothing is said to it
        job.tell(1)
        assert job.end(1) == {"sum": 2.0}
        out, err = job.processes[0].communicate(timeout=110)
        assert json.loads(out.splitlines()[-1]) == {"sum": 2.0}
        lines = [line for line in err.splitlines() if line.startswith("tulle: refused a connection from ")]
        assert 1 <= len(lines) <= 5 and "127.0.0.1" in lines[0], err


def test_calls_in_a_forked_child_raise_and_the_parent_goes_on():
    [first, second] = run_ranks(
        2,
        """
comm = tulle.connect()
comm.start_progress_thread()
request = tulle.iallreduce(tulle.Stream([1], [1.0], 10), comm=comm)
faulthandler.cancel_dump_traceback_later()  # its thread is not in the child, which would wait for it when it ends
child = os.fork()
if child == 0:
    told = [error_of(lambda: tulle.allreduce(np.ones(3), comm=comm)), error_of(request.wait), error_of(comm.barrier)]
    fine = all(each is not None and each["kind"] == "unsupported" and "forked" in each["text"] for each in told)
    del comm, request
    sys.exit(0 if fine else 7)
status = os.waitpid(child, 0)[1]
report(child=os.waitstatus_to_exitcode(status), first=float(request.wait().values[0]),
       value=float(tulle.allreduce(np.ones(3), comm=comm)[0]))
""",
    )
    assert first == second == {"child": 0, "first": 2.0, "value": 2.0}


def test_a_thousand_calls_leak_nothing():
    reports = run_ranks(
        2,
        """
import gc
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
comm = tulle.connect()
def call(i):
    mine = np.ones(10_000, np.float32)
    tulle.allreduce(mine, comm=comm)
    request = tulle.iallreduce(tulle.Stream(np.arange(1000, dtype=np.uint32), np.ones(1000), 10_000), comm=comm)
    request.wait().values.sum()
    tulle.allreduce_top_k(mine, k=10, comm=comm)
    try:
        tulle.allreduce(np.ones(3), comm=comm, op="plus")
    except ValueError:
        pass
for i in range(100):
    call(i)
gc.collect()
before, objects = resident(), len(gc.get_objects())
for i in range(333):
    call(i)
gc.collect()
report(grown=resident() - before, objects=len(gc.get_objects()) - objects)
""",
    )
    for each in reports:
        assert each["grown"] < 4 << 20 and each["objects"] < 100, each  # one array of each call would be 13 MB


@pytest.mark.parametrize("end", ["pass", "raise SystemExit(0)"])
def test_a_process_that_ends_without_closing_ends_well(end):
    run_ranks(2, f"tulle.allreduce(np.ones(3))\nreport(done=True)\nrequest = tulle.iallreduce(np.ones(3))\n{end}\n")


def test_a_rendezvous_of_files_or_of_ones_own(tmp_path):
    source = """
class Files:
    def __init__(self, path, rank, size):
        self.path, self.rank, self.size = path, rank, size
    def allgather(self, mine):
        with open(f"{self.path}/{self.rank}.new", "wb") as file:
            file.write(mine)
        os.rename(f"{self.path}/{self.rank}.new", f"{self.path}/{self.rank}")
        while not all(os.path.exists(f"{self.path}/{r}") for r in range(self.size)):
            time.sleep(0.01)
        return [open(f"{self.path}/{r}", "rb").read() for r in range(self.size)]

rank, size = int(os.environ["TULLE_RANK"]), int(os.environ["TULLE_SIZE"])
by_python = tulle.connect(rendezvous=Files("PATH", rank, size))
by_files = tulle.connect(directory="PATH", rank=rank, size=size)
by_address = tulle.connect(os.environ["TULLE_ADDRESS"], rank=rank, size=size)
report(sums=[float(tulle.allreduce(np.ones(2), comm=comm)[0]) for comm in (by_python, by_files, by_address)])
"""
    assert run_ranks(2, source.replace("PATH", str(tmp_path))) == [{"sums": [2.0] * 3}] * 2


def test_a_rendezvous_that_raises_is_heard():
    class Broken:
        rank, size = 0, 2

        def allgather(self, mine):
            raise KeyError("the store is gone")

    with pytest.raises(KeyError, match="the store is gone"):
        tulle.connect(rendezvous=Broken())


def test_the_environment_is_named_where_it_is_missing(monkeypatch):
    for name in ("TULLE_RANK", "TULLE_SIZE", "TULLE_ADDRESS", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(tulle.BadInputError, match="TULLE_SIZE"):
        tulle.connect()
    with pytest.raises(ValueError, match="rank and size"):
        tulle.connect("127.0.0.1:1")
    with pytest.raises(ValueError, match="host:port"):
        tulle.connect("nowhere", rank=0, size=1)


def under_mpirun(*arguments):
    """What four ranks of Python print."""
    pytest.importorskip("mpi4py")
    launcher = shutil.which("mpirun.openmpi")
    if launcher is None:
        pytest.skip("mpi4py of Debian is built with Open MPI, whose mpirun is missing")
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    command = [launcher, "-n", "4", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", sys.executable, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_mpi4py_communicators_are_a_rendezvous():
    source = (
        "from mpi4py import MPI; import os, numpy as np, tulle; w = MPI.COMM_WORLD\n"
        "first = tulle.allreduce(np.ones(3), comm=w)[0]\n"
        "half = w.Split(w.rank % 2)\n"
        "second, third = (tulle.allreduce(np.ones(3), comm=comm)[0] for comm in (w, half))\n"
        "os.write(1, f'sums {first} {second} {third}\\n'.encode())\n"  # at once: ranks share the terminal
    )
    assert under_mpirun("-c", source).count("sums 4.0 4.0 2.0") == 4


def test_the_example_with_mpi4py_runs():
    printed = under_mpirun(pathlib.Path(__file__).parents[2] / "examples" / "mpi4py_allreduce.py")
    assert re.fullmatch(r"(step [012]: \d+ values by \w+, \d+ bytes sent\n){3}", printed), printed
