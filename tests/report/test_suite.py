"""The standing suite and the check against a baseline. TULLE is the program."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from tulle_suite import cases, check  # noqa: E402
from tulle_suite.program import Program  # noqa: E402
from tulle_suite.results import Results  # noqa: E402
from tulle_suite.run import Suite, command_of, why_not  # noqa: E402

TULLE = os.environ["TULLE"]
SMALL = cases.comparison(cases.SIM, 3, "4K", (0.01, 0.1), 1, "--algorithm", "auto,dense_ring")


class SuiteCase(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = os.path.join(directory.name, "results", "rows.jsonl")
        self.program = Program(TULLE)
        self.commit = self.program.commit()

    def run_suite(self, *suite_cases):
        """Runs cases into the file, and gives what was said and what failed."""
        suite = Suite(suite_cases, self.program, Results(self.path, self.commit))
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            suite.run()
        return said.getvalue(), suite.failures

    def rows(self):
        return Results(self.path, self.commit).rows()


class Running(SuiteCase):
    def test_what_was_measured_is_not_measured_again(self):
        self.assertIn("4 rows", self.run_suite(SMALL)[0])
        first = self.rows()
        self.assertEqual([row["density"] for row in first], [0.01, 0.01, 0.1, 0.1])
        self.assertIn("done before", self.run_suite(SMALL)[0])
        self.assertEqual(self.rows(), first)

    def test_a_killed_run_goes_on_where_it_was(self):
        self.run_suite(SMALL)
        results = Results(self.path, self.commit)
        done, lost = self.rows()[:2], self.rows()[2:]
        os.remove(self.path)
        with open(results.part(SMALL), "w", encoding="utf-8") as file:  # of a killed run: one density, half a line
            file.writelines(json.dumps(row) + "\n" for row in done)
            file.write(json.dumps(lost[0])[:30])
        self.assertEqual(results.densities_left(SMALL), [0.01, 0.1])
        self.assertIn("2 rows\n  2 rows", self.run_suite(SMALL)[0])
        self.assertEqual([row["density"] for row in self.rows()], [0.01, 0.01, 0.1, 0.1])
        self.assertFalse(os.path.exists(results.part(SMALL)))

    def test_rows_of_another_commit_do_not_count(self):
        self.run_suite(SMALL)
        self.assertEqual(Results(self.path, "another").densities_left(SMALL), [0.01, 0.1])

    def test_a_cut_last_line_is_dropped(self):
        self.run_suite(SMALL)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write('{"algorithm": "aut')
        self.assertEqual(len(Results(self.path, self.commit).rows()), 4)

    def test_what_this_tulle_lacks_is_skipped_with_the_reason(self):
        said, failures = self.run_suite(cases.Case(("bench", "nothing")), cases.Case(("list",), needs_flag="--nothing"))
        for reason in ("no 'bench nothing'", "'list' has no --nothing"):
            self.assertIn(reason, said)
        self.assertEqual(failures, [])

    def test_a_case_that_fails_is_named(self):
        _, failures = self.run_suite(cases.comparison(cases.SIM, 3, "4K", (0.01,), 1, "--deadline", "1e-12"))
        self.assertEqual(len(failures), 1)
        self.assertIn("exit code 1", failures[0])

    def test_rows_of_another_setting_of_mpi_have_a_name_of_their_own(self):
        self.run_suite(cases.comparison(cases.SIM, 3, "4K", (0.01,), 1, "--algorithm", "dense_ring", rename="other"))
        self.assertEqual([(row["algorithm"], row["chosen"]) for row in self.rows()], [("other", "dense_ring")])

    def test_every_comparison_of_the_suites_is_one_that_this_tulle_understands(self):
        for name, suite in cases.SUITES.items():
            described = [str(case) for case in suite()]
            self.assertEqual(len(described), len(set(described)), f"{name}: two cases have one description")
        for case in [*cases.short_suite(), *cases.full_suite()]:
            if case.network == cases.SIM and why_not(case, self.program) == "":
                command = command_of(case, self.program, case.densities, "/nonexistent/x", "")
                refused = subprocess.run(command, capture_output=True, text=True, check=False)
                self.assertIn("/nonexistent/x", refused.stderr, case)  # nothing is wrong but the file


class Checking(unittest.TestCase):
    BASELINE = {"a": 10.0, "b": 2.0}

    def measure(self, *answers):
        """A measurement that gives one answer after the other, and the last one for ever."""
        left = list(answers)
        return lambda: dict(left.pop(0) if len(left) > 1 else left[0])

    def sure(self, *answers):
        said = []
        return check.measure_until_sure(self.measure(*answers), self.BASELINE, said.append), said

    def test_a_ratio_may_fall_by_a_fifth(self):
        self.assertEqual(check.fallen({"a": 8.01, "b": 1.61}, self.BASELINE), set())
        self.assertEqual(check.fallen({"a": 7.99, "b": 1.59}, self.BASELINE), {"a", "b"})

    def test_a_disturbed_measurement_is_repeated_and_forgiven(self):
        ratios, said = self.sure({"a": 5.0, "b": 2.0}, {"a": 9.9, "b": 1.0})
        self.assertEqual(ratios, {"a": 9.9, "b": 2.0})
        self.assertEqual(len(said), 1)

    def test_what_stays_low_is_named(self):
        ratios, said = self.sure({"a": 5.0, "b": 2.0})
        lines, is_bad = check.compare(ratios, self.BASELINE)
        self.assertEqual((lines, is_bad), (["fell: a: 5.00, was 10.00 (-50%)"], True))
        self.assertEqual(len(said), check.TRIES - 1)

    def test_what_is_gone_is_bad_and_what_is_new_is_not(self):
        self.assertEqual(check.compare({"a": 10.0}, self.BASELINE), (["gone: b, was 2.00"], True))
        self.assertEqual(check.compare({**self.BASELINE, "c": 3.0}, self.BASELINE), (["new: c: 3.00"], False))

    def test_the_command_gives_1_and_names_what_fell_and_writes_a_baseline(self):
        loader = importlib.machinery.SourceFileLoader("bench_check", os.path.join(ROOT, "scripts", "bench-check"))
        command = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_check", loader))
        loader.exec_module(command)
        groups, said = check.GROUPS, io.StringIO()
        self.addCleanup(setattr, check, "GROUPS", groups)
        with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stderr(said):
            for name in ("tulle", "tulle_bench_kernels"):
                os.symlink(TULLE, os.path.join(directory, name))
            flags = ["--build", directory, "--baseline", os.path.join(directory, "baseline.json")]
            check.GROUPS = (lambda *_: {"a": 10.0},)
            self.assertEqual(command.main([*flags, "--update"]), 0)
            self.assertEqual(command.main(flags), 0)
            check.GROUPS = (lambda *_: {"a": 7.0},)
            self.assertEqual(command.main(flags), 1)
        self.assertIn("fell: a: 7.00, was 10.00", said.getvalue())

    def test_the_committed_baseline_is_of_ratios(self):
        with open(os.path.join(ROOT, "bench", "baseline.json"), encoding="utf-8") as file:
            baseline = json.load(file)
        self.assertTrue(all(ratio > 0 for ratio in baseline.values()))
        self.assertTrue(any(name.startswith("kernel:") for name in baseline))


if __name__ == "__main__":
    unittest.main()
