"""scripts/table2: what it makes of the lines of epochs, and a small table."""
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from tulle_suite import table2  # noqa: E402


def epoch(aggregation, number, seconds, waiting):
    return {"aggregation": aggregation, "epoch": number, "seconds": seconds, "communication_seconds": waiting}


class Table2(unittest.TestCase):
    def test_runs_are_told_apart_by_their_first_epochs(self):
        rows = [epoch("dense", 1, 5, 4), epoch("dense", 2, 8, 6), epoch("sparse", 1, 1, 0.5), epoch("sparse", 2, 3, 1),
                epoch("dense", 1, 9, 8)]
        self.assertEqual(table2.runs_of(rows), [("dense", 4, 3), ("sparse", 1.5, 0.5), ("dense", 9, 8)])

    def test_ratios_are_of_medians_and_of_neighbours(self):
        result = table2.Result.of([("dense", 10, 9), ("sparse", 2, 1), ("dense", 30, 27), ("sparse", 2, 1.5),
                                   ("dense", 12, 10), ("sparse", 3, 2)])
        self.assertEqual((result.dense, result.sparse), ((12, 10), (2, 1.5)))
        self.assertEqual((result.speed_up(0), result.least, result.most), (6, (4, 5), (15, 18)))

    def test_every_row_of_the_paper_is_there(self):
        simulated = [case for case in table2.cases() if case.network != "lab"]
        rows = {(case.network, case.data[0], case.model, case.ranks) for case in simulated if case.solver == "sgd" and case.paper}
        aries = {("aries", data, model, ranks) for data in ("url", "webspam")
                 for model, ranks in (("logistic", 8), ("logistic", 32), ("logistic", 128), ("hinge", 32))}
        others = {(network, data, "logistic", 8) for network in ("ib_fdr", "gige") for data in ("url", "webspam")}
        self.assertEqual(rows, aries | others)
        self.assertEqual([case.paper for case in simulated if case.solver == "scd" and case.paper], [(1.8, 5.3)])

    def test_lab_runs_alternate(self):
        case = next(case for case in table2.cases() if case.network == "lab")
        settings = types.SimpleNamespace(repeats=3, epochs=2, batch=1000)
        words = table2.command(case, types.SimpleNamespace(path="tulle"), "rows", settings, "lines")
        self.assertEqual(words[words.index("--aggregation") + 1:], ["dense", "sparse"] * 3)

    def test_prints_a_row_for_each_case(self):
        with tempfile.TemporaryDirectory() as directory:
            lines = os.path.join(directory, "table.jsonl")
            ran = subprocess.run([os.path.join(ROOT, "scripts", "table2"), "--scale", "0.002", "--only",
                                  "url-like, aries, P = 8", "--data", directory, "--json", lines],
                                 capture_output=True, text=True, timeout=100)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            with open(lines, encoding="utf-8") as file:
                rows = [json.loads(line) for line in file]
        self.assertEqual([row["solver"] for row in rows], ["scd", "scd", "sgd"])
        for row in rows:
            self.assertGreater(row["speed_up"][1], 1)
        self.assertIn("| sgd, url-like, aries, P = 8 |", ran.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
