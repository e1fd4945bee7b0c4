"""tulle.torch: jobs of processes that make many checks each, and jobs that end badly."""
import doctest
import importlib
import json
import os
import pathlib
import pkgutil
import re
import signal
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")
HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parents[2] / "examples"
BENCHMARK = HERE.parents[2] / "bench" / "torch_steps.py"
sys.path[:0] = [str(HERE), str(HERE.parent)]
from processes import free_port  # noqa: E402


class Job:
    """Ranks that run one script, started as torchrun would: by the environment."""

    def __init__(self, size, *arguments, **environment):
        port = str(free_port())
        self.processes = []
        for rank in range(size):
            variables = dict(
                os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port, OMP_NUM_THREADS="1", PYTHONPATH=f"{os.environ.get('PYTHONPATH', '')}:{HERE}", **environment,
            )  # fmt: skip
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, *map(str, arguments)],
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def line(self, rank):
        text = self.processes[rank].stdout.readline()
        assert text, f"rank {rank} ended: {self.processes[rank].stderr.read()}"
        return text.strip()

    def output(self, rank, seconds=180):
        """What a rank that ends well printed."""
        out, err = self.processes[rank].communicate(timeout=seconds)
        assert self.processes[rank].returncode == 0, f"rank {rank}: {out}\n{err}"
        return out


def checks_in(name):
    return re.findall(r"^@check\ndef (\w+)", (HERE / name).read_text(), re.MULTILINE)


class Told:
    """What the ranks of one job say about each check; the job runs when the first of them is asked for."""

    def __init__(self, size, script, path):
        self.reports = []
        with Job(size, HERE / script, CHECKPOINT=str(path)) as job:
            for process in job.processes:
                out, err = process.communicate(timeout=180)
                lines = out.strip().splitlines()
                self.reports.append(json.loads(lines[-1]) if lines else {"": err})

    def require(self, name):
        for rank, report in enumerate(self.reports):
            assert report.get(name) == "ok", f"rank {rank}: {report.get(name, report)}"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("states") / "state"


@pytest.fixture(scope="module")
def of_four(path):
    return Told(4, "checks_of_four.py", path)


@pytest.fixture(scope="module")
def of_two(path, of_four):
    return Told(2, "checks_of_two.py", path)


@pytest.fixture(scope="module")
def of_wrong_uses(path):
    return Told(2, "checks_of_wrong_uses.py", path)


@pytest.mark.parametrize("name", checks_in("checks_of_four.py"))
def test_four_ranks(of_four, name):
    of_four.require(name)


@pytest.mark.parametrize("name", checks_in("checks_of_two.py"))
def test_two_ranks(of_two, name):
    of_two.require(name)


@pytest.mark.parametrize("name", checks_in("checks_of_wrong_uses.py"))
def test_wrong_uses(of_wrong_uses, name):
    of_wrong_uses.require(name)


def test_docstrings_are_right():
    import tulle.torch

    attempted = 0
    for module in pkgutil.iter_modules(tulle.torch.__path__):
        result = doctest.testmod(importlib.import_module(f"tulle.torch.{module.name}"))
        assert result.failed == 0, module.name
        attempted += result.attempted
    assert attempted >= 10


ENDLESS = """
import checks, sys, time, torch
from checks import *
dist.init_process_group("gloo")
model = made()
ddp = DDP(model)
handle = tulle.torch.register(ddp, "topk:10%", deadline=float(sys.argv[1]))
try:
    for step in range(10**9):
        loss_of(ddp, step).backward()
        if step == 3:
            print("ready", flush=True)
except tulle.Error as error:
    print(type(error).__name__, error.peer, error, flush=True)
    os._exit(0)
"""


@pytest.fixture
def endless(tmp_path):
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    return script


def test_a_killed_process_is_named_by_the_others(endless):
    with Job(3, endless, 60) as job:
        assert [job.line(rank) for rank in range(3)] == ["ready"] * 3
        job.processes[1].kill()
        for rank in (0, 2):
            told = job.output(rank, 60)
            # Who hears of it from a survivor first has that one as its peer; the dead one is in the text of all.
            assert "Error" in told and "rank 1" in told, told


def test_a_stopped_process_is_named_within_the_deadline(endless):
    with Job(2, endless, 4) as job:
        assert [job.line(rank) for rank in range(2)] == ["ready"] * 2
        job.processes[1].send_signal(signal.SIGSTOP)
        began = time.monotonic()
        told = job.output(0, 60)
        assert told.startswith("DeadlineError") and "rank 1" in told and time.monotonic() - began < 40, told


def test_ctrl_c_ends_the_backward_pass(endless):
    with Job(2, endless, 60) as job:
        assert [job.line(rank) for rank in range(2)] == ["ready"] * 2
        job.processes[1].send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        job.processes[0].send_signal(signal.SIGINT)
        _, err = job.processes[0].communicate(timeout=60)
        assert "KeyboardInterrupt" in err and job.processes[0].returncode != 0, err


def test_a_script_that_raises_in_the_middle_ends_all_ranks(tmp_path):
    script = tmp_path / "raises.py"
    script.write_text(
        """
from checks import *
dist.init_process_group("gloo")
ddp = DDP(made())
tulle.torch.register(ddp, "topk:10%")
for step in range(100):
    if step == 3 and RANK == 1:
        raise KeyError("a bug of the script's")
    loss_of(ddp, step).backward()
"""
    )
    with Job(2, script) as job:
        _, first = job.processes[0].communicate(timeout=90)
        _, second = job.processes[1].communicate(timeout=90)
        assert "a bug of the script's" in second and "its script raised KeyError" in first, first
        assert all(process.returncode not in (0, None) for process in job.processes)


def examples():
    return sorted(EXAMPLES.glob("torch_*.py"))


@pytest.mark.parametrize("script", examples(), ids=lambda script: script.name)
def test_the_examples_run(script):
    with Job(2, script, "--short") as job:
        printed = job.output(0)
        assert re.search(r"recipe +\w+", printed), printed
        losses = [float(each) for each in re.findall(r"loss ([\d.]+)", printed)]
        assert len(losses) >= 2 and losses[-1] < losses[0], printed


def test_there_are_examples():
    assert len(examples()) == 3


def rows_of_benchmark(ranks, *arguments):
    with Job(ranks, BENCHMARK, *arguments, "--synthetic", "--model", "mlp", "--width", "40") as job:
        return [json.loads(line) for line in job.output(0).splitlines()]


def test_the_benchmark_measures_the_hook_beside_its_pipeline():
    (row,) = rows_of_benchmark(1, "hook", "--steps", "3", "--warm-up", "1")
    assert row["recipe"] == "topk:1%" and row["parameters"] == 6
    assert row["pipeline_milliseconds"] > 0


def test_the_benchmark_trains_by_every_method():
    methods = ["ddp", "powersgd_hook:1", "tulle dense", "tulle topk:10%"]
    rows = rows_of_benchmark(2, "accuracy", "--epochs", "1", "--methods", *methods)
    accuracies = {row["method"]: row["accuracy"] for row in rows}
    assert list(accuracies) == methods
    assert accuracies["ddp"] == accuracies["tulle dense"]  # of two numbers there is one sum
    assert all(accuracy > 0.9 for accuracy in accuracies.values()), accuracies


@pytest.mark.skipif(torch.__version__ < "2", reason="Debian's torchrun is broken on Python 3.11")
def test_torchrun_starts_it():
    script = EXAMPLES / "torch_mnist.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", f"--master_port={free_port()}", script]
    done = subprocess.run([*map(str, command), "--short", "--synthetic"], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0 and "recipe" in done.stdout, done.stderr
