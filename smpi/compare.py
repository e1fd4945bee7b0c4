#!/usr/bin/python3
"""Our simulator beside SimGrid's SMPI: the same code, inputs and network in both, computation free in both.

Prints the time of every algorithm in both, and counts the cells (network, ranks, density) in which both rank the
algorithms in the same order, and the times that differ by at most 30 %. Two times that are within 5 % of each other
are a draw, which no order contradicts. Succeeds where nine cells in ten have the same order, and nine times in ten
are near.
"""
import argparse
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DRAW = 1.05
NEAR = 1.30
SEED = 1
SKIPPED = 77  # what CTest takes for it

# Densities of each number of ranks. SMPI takes minutes for a row of 128.
CELLS = {8: [0.001, 0.01, 0.1], 32: [0.001, 0.01, 0.1], 64: [0.001, 0.1], 128: [0.01]}

# What a look for messages takes that finds none, in seconds: about a twentieth of α. Too long: messages wait to be seen.
# Too short: SMPI spends its time on probes.
POLL_SECONDS = {"gige": 1.5e-6, "ib_fdr": 1e-7}

# Times of SMPI itself that have no counterpart in the model are switched off: growing costs of failed probes, and the
# factors that were fitted to one cluster's TCP. Messages below 64 KiB are eager, as with real MPIs: they leave before
# their receiver asks for them. Larger ones wait for it.
CONFIG = {
    "smpi/simulate-computation": "no",
    "smpi/grow-injected-times": "no",
    "smpi/bw-factor": "0:1",
    "smpi/lat-factor": "0:1",
    "network/crosstraffic": "0",
    "smpi/async-small-thresh": "65536",
    "smpi/send-is-detached-thresh": "65536",
    "smpi/privatization": "dlopen",
}
FITTED = ("smpi/bw-factor", "smpi/lat-factor", "network/crosstraffic")


class Cell:
    """The algorithms of one network, number of ranks and density: seconds in both simulators."""

    def __init__(self, network, ranks, density, ours, theirs):
        self.place = (network, ranks, density)
        self.ours, self.theirs = ours, theirs

    def same_order(self):
        return all(self.agree(a, b) for a, b in itertools.combinations(self.ours, 2))

    def agree(self, a, b):
        ratios = self.ours[a] / self.ours[b], self.theirs[a] / self.theirs[b]
        if any(1 / DRAW < ratio < DRAW for ratio in ratios):
            return True
        return (ratios[0] < 1) == (ratios[1] < 1)

    def same_winner(self):
        best = min(self.theirs, key=self.theirs.get)
        return self.ours[best] <= DRAW * min(self.ours.values())

    def near(self):
        return [name for name in self.ours if 1 / NEAR <= self.theirs[name] / self.ours[name] <= NEAR]


def simulate(tulle, network, ranks, dimension, densities, coding):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "rows.jsonl")
        subprocess.run([tulle, "simulate", "--network", network, "--ranks", str(ranks), "--dimension", str(dimension),
                        "--density", *map(str, densities), "--algorithm", "all", "--no-computation", "--index-coding",
                        coding, "--seed", str(SEED), "--memory", "8G", "--json", str(path)],
                       check=True, stdout=subprocess.DEVNULL)
        rows = map(json.loads, path.read_text().splitlines())
        # SMPI says that all ranks share a node; ours are on nodes of their own.
        return [row for row in rows if row["algorithm"] not in ("auto", "two_level")]


def witness(program, network, ranks, dimension, densities, coding, fitted):
    config = {**CONFIG, "smpi/iprobe": POLL_SECONDS[network], "smpi/test": POLL_SECONDS[network]}
    if fitted:
        config = {name: value for name, value in config.items() if name not in FITTED}
    command = ["smpirun", "-np", str(ranks), "-platform", str(HERE / f"{network}.xml"), "--log=root.thres:error",
               *[f"--cfg={name}:{value}" for name, value in config.items()], program, str(dimension), str(SEED), coding,
               *map(str, densities)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TBB_NUM_THREADS": "1"})
    if done.returncode != 0:
        sys.exit(f"smpirun failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def times_at(rows, density):
    return {row["algorithm"]: row["seconds_median"] for row in rows if abs(row["density"] - density) < 1e-12}


def compare(arguments):
    cells = []
    for network, ranks in itertools.product(arguments.networks, arguments.ranks):
        densities = arguments.densities or CELLS.get(ranks, [0.01])
        setting = (network, ranks, arguments.dimension, densities, arguments.index_coding)
        ours = simulate(arguments.tulle, *setting)
        theirs = witness(arguments.witness, *setting, arguments.fitted)
        for density in densities:
            cells.append(Cell(network, ranks, density, times_at(ours, density), times_at(theirs, density)))
            show(cells[-1])
    return cells


def show(cell):
    network, ranks, density = cell.place
    print(f"\n{network}, {ranks} ranks, density {density:g}: order {'same' if cell.same_order() else 'DIFFERS'}, "
          f"{len(cell.near())} of {len(cell.ours)} times within 30 %")
    print(f"  {'algorithm':<24}{'tulle (us)':>12}{'SMPI (us)':>12}{'SMPI / tulle':>14}")
    for name in sorted(cell.ours, key=cell.ours.get):
        ours, theirs = cell.ours[name], cell.theirs[name]
        print(f"  {name:<24}{ours * 1e6:>12.1f}{theirs * 1e6:>12.1f}{theirs / ours:>14.2f}", flush=True)


def summarize(cells):
    same = sum(cell.same_order() for cell in cells)
    winners = sum(cell.same_winner() for cell in cells)
    near, times = sum(len(cell.near()) for cell in cells), sum(len(cell.ours) for cell in cells)
    print(f"\nsame order of algorithms: {same} of {len(cells)} cells; same winner: {winners} of {len(cells)}; "
          f"times within 30 %: {near} of {times}")
    return same >= 0.9 * len(cells) and near >= 0.9 * times


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tulle", required=True, help="the command")
    parser.add_argument("--witness", required=True, help="smpi_witness")
    parser.add_argument("--networks", nargs="+", default=["gige", "ib_fdr"], choices=sorted(POLL_SECONDS))
    parser.add_argument("--ranks", nargs="+", type=int, default=sorted(CELLS))
    parser.add_argument("--densities", nargs="+", type=float, help="the same for all ranks")
    parser.add_argument("--dimension", type=int, default=2**18)
    parser.add_argument("--index-coding", default="raw")
    parser.add_argument("--fitted", action="store_true", help="leave SMPI's factors for TCP on")
    return parser.parse_args()


if __name__ == "__main__":
    if shutil.which("smpirun") is None:
        print("skipped: SimGrid is not installed (Debian: libsimgrid-dev)")
        sys.exit(SKIPPED)
    sys.exit(0 if summarize(compare(parse_arguments())) else 1)
