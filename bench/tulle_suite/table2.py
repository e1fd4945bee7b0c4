"""SparCML's Table 2: passes over its kinds of data, with dense and with sparse sums, beside what the paper has."""

import json
import os
import statistics
import subprocess
import tempfile
from dataclasses import dataclass

from .program import read_rows
from .run import LAB

STEP_ROWS = 1000  # of each rank, as in the paper


@dataclass(frozen=True)
class Case:
    """`paper` is its speed-up per epoch and of communication alone, where it has one."""

    data: tuple
    network: str
    ranks: int
    solver: str = "sgd"
    paper: tuple = ()
    model: str = "logistic"

    def __str__(self):
        name = "svm" if self.model == "hinge" else self.solver
        return f"{name}, {self.data[0]}-like, {self.network}, P = {self.ranks}"


def cases(scale=1.0):
    """URL-like rows make at least two steps an epoch, webspam-like ones, which are 30 times as long, at least one."""

    def like(kind, rows):
        return kind, max(int(rows * scale), 40)

    url, webspam, few = like("url", 256000), like("webspam", 32000), like("url", 3000)
    many = like("url", 300000)  # for SCD, of which every rank keeps all: enough that computing counts
    webspam_for_128 = like("webspam", 128000)
    yield Case(like("url", 80000), "lab", 8, paper=(12.65, 23.81))
    yield Case(like("webspam", 16000), "lab", 8, paper=(20.26, 25.75))
    yield Case(few, "lab", 8, "scd")
    yield Case(few, "aries", 8, "scd")
    yield Case(many, "aries", 8, "scd", paper=(1.8, 5.3))
    yield Case(url, "gige", 8, paper=(12.65, 23.81))
    yield Case(webspam, "gige", 8, paper=(20.26, 25.75))
    yield Case(url, "ib_fdr", 8, paper=(1.33, 1.80))
    yield Case(webspam, "ib_fdr", 8, paper=(1.80, 2.46))
    yield Case(url, "aries", 8, paper=(1.80, 2.35))
    yield Case(webspam, "aries", 8, paper=(1.82, 2.40))
    yield Case(url, "aries", 32, paper=(3.52, 3.69))
    yield Case(webspam, "aries", 32, paper=(3.53, 6.17))
    yield Case(url, "aries", 32, model="hinge", paper=(3.54, 3.64))
    yield Case(webspam, "aries", 32, model="hinge", paper=(2.49, 3.23))
    yield Case(url, "gige", 32)
    yield Case(webspam, "gige", 32)
    yield Case(url, "aries", 128, paper=(1.97, 2.00))
    yield Case(webspam_for_128, "aries", 128, paper=(3.56, 5.80))
    yield Case(url, "gige", 128)
    yield Case(webspam_for_128, "gige", 128)


def command(case, program, data, settings, json_path):
    """Repeats alternate between the two inside one job, so that both meet the same machine."""
    is_lab = case.network == "lab"
    repeats = settings.repeats if is_lab else 1  # a simulation gives the same times whenever it runs
    own = [program.path, "train", "linear", "--data", data, "--model", case.model, "--solver", case.solver, "--json", json_path,
           *(["--batch", str(settings.batch)] if case.solver == "sgd" else []), "--epochs", str(settings.epochs if case.solver == "sgd" and is_lab else 1),
           "--memory", "1G" if is_lab else "16M", "--aggregation", *["dense", "sparse"] * repeats]
    if is_lab:
        return [LAB, "with", "--hosts", str(case.ranks), "--rate", "1gbit", "--check", "--quiet", "--timeout", "1800",
                "--", *own]
    return [*own, "--transport", "sim", "--ranks", str(case.ranks), "--network", case.network]


def runs_of(rows):
    """(aggregation, seconds, communication seconds) per epoch of each run, from the lines of its epochs."""
    runs = []
    for row in rows:
        run = (row["aggregation"], row["seconds"] / row["epoch"], row["communication_seconds"] / row["epoch"])
        if row["epoch"] == 1:
            runs.append(run)
        else:
            runs[-1] = run
    return runs


@dataclass(frozen=True)
class Result:
    """Medians over repeats, and the ratios of neighbours in time from the least to the most."""

    dense: tuple
    sparse: tuple
    least: tuple
    most: tuple

    @staticmethod
    def of(runs):
        dense = [run[1:] for run in runs if run[0] == "dense"]
        sparse = [run[1:] for run in runs if run[0] == "sparse"]
        ratios = [[d / max(s, 1e-12) for d, s in zip(*pair)] for pair in zip(dense, sparse)]
        columns = list(zip(*ratios))
        return Result(tuple(map(statistics.median, zip(*dense))), tuple(map(statistics.median, zip(*sparse))),
                      tuple(map(min, columns)), tuple(map(max, columns)))

    def speed_up(self, column):
        return self.dense[column] / max(self.sparse[column], 1e-12)

    def cells(self, paper):
        spread = [f"{self.least[i]:.1f} to {self.most[i]:.1f}" for i in (0, 1)]
        return [f"{self.dense[0]:.4g} ({self.dense[1]:.4g})", f"{self.sparse[0]:.4g} ({self.sparse[1]:.4g})",
                f"{self.speed_up(0):.2f} ({self.speed_up(1):.2f})", f"{spread[0]} ({spread[1]})",
                f"{paper[0]:.2f} ({paper[1]:.2f})" if paper else ""]


HEADER = ("case", "dense, s an epoch (waiting)", "sparse", "speed-up (waiting)", "of single pairs", "SparCML")


def make_data(program, directory, kind, rows):
    path = os.path.join(directory, f"{kind}-{rows}.tcsr")
    if not os.path.exists(path):
        subprocess.run([program.path, "generate", "--like", kind, "--rows", str(rows), path + ".part"], check=True,
                       stdout=subprocess.DEVNULL)
        os.rename(path + ".part", path)
    return path


def measure(case, program, settings):
    """The exit code, and the result where that is 0."""
    data = make_data(program, settings.data, *case.data)
    with tempfile.TemporaryDirectory() as scratch:
        lines = os.path.join(scratch, "epochs.jsonl")
        code = subprocess.run(command(case, program, data, settings, lines), stdout=subprocess.DEVNULL,
                              check=False).returncode
        return (code, None) if code else (0, Result.of(runs_of(read_rows(lines))))


def as_json(case, result):
    return json.dumps({"kind": "table2", "model": case.model, "solver": case.solver, "data": case.data[0], "rows": case.data[1],
                       "network": case.network, "ranks": case.ranks, "dense": result.dense, "sparse": result.sparse,
                       "speed_up": [result.speed_up(0), result.speed_up(1)], "least": result.least,
                       "most": result.most, "paper": case.paper})
