"""tulle list recipes and tulle bench gradient as their users run them. TULLE is the program, TULLE_MPIRUN what starts
three ranks of it, or empty."""
import json
import os
import shlex
import subprocess
import tempfile
import unittest

TULLE = os.environ["TULLE"]
MPIRUN = shlex.split(os.environ.get("TULLE_MPIRUN", ""))
FIELDS = {"recipe", "ranks", "values", "seconds_median", "seconds_q1", "seconds_q3", "bytes_sent_max", "ratio",
          "exposed_seconds", "verified", "every", "density", "shapes", "transport", "cpu", "timestamp"}


def run(*arguments, launcher=(), **environment):
    return subprocess.run([*launcher, TULLE, *arguments], capture_output=True, text=True, timeout=100,
                          env={**os.environ, "TULLE_LAB": "none", **environment})


def bench(*arguments, launcher=(), **environment):
    return run("bench", "gradient", "--shapes", "3000,17,500", "--repeats", "2", *arguments, launcher=launcher,
               **environment)


def presets():
    return [row["name"] for row in json.loads(run("list", "recipes", "--json").stdout)]


class Gradient(unittest.TestCase):
    def expect_rows(self, result, recipes):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        lines = [line for line in result.stdout.splitlines() if line and line[0] != "#"][2:]
        self.assertEqual([line.split()[0] for line in lines], recipes)
        for line in lines:
            self.assertTrue(line.endswith("OK"), line)

    def test_recipes_are_listed_with_what_they_send_cost_and_give_up(self):
        rows = json.loads(run("list", "recipes", "--json").stdout)
        self.assertTrue({"dense", "noop", "topk", "dgc", "redsync", "spardl", "three_lc"} <= {row["name"] for row in rows})
        for row in rows:
            self.assertEqual(set(row), {"name", "paper", "sends", "passes", "gives up", "summary"})
            self.assertTrue(row["sends"] and row["summary"], row)
        self.assertIn("three_lc", run("list", "recipes").stdout)

    def test_every_recipe_makes_verified_steps_in_simulation(self):
        self.expect_rows(bench("--transport", "sim", "--ranks", "4"), presets())

    def test_recipes_run_on_threads_and_over_tcp(self):
        recipes = ["dense", "topk:5%", "three_lc"]
        self.expect_rows(bench("--transport", "threads", "--ranks", "3", "--recipe", *recipes), recipes)
        self.expect_rows(run("run", "-n", "2", "--", TULLE, "bench", "gradient", "--shapes", "2K,10x3", "--repeats", "1",
                             "--recipe", *recipes), recipes)

    def test_dense_is_there_to_compare_with(self):
        self.expect_rows(bench("--transport", "sim", "--recipe", "topk:1%"), ["dense", "topk:1%"])

    def test_rows_are_appended_as_json(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "rows.jsonl")
            bench("--transport", "threads", "--ranks", "2", "--recipe", "spardl:1%", "--json", path)
            with open(path) as file:
                rows = [json.loads(line) for line in file]
        self.assertEqual([row["recipe"] for row in rows], ["dense", "spardl:1%"])
        for row in rows:
            self.assertLessEqual(FIELDS, set(row))
            self.assertTrue(row["verified"])
            self.assertEqual((row["ranks"], row["values"], row["transport"]), (2, 3517, "threads"))
            self.assertLessEqual(row["seconds_q1"], row["seconds_q3"])
            self.assertGreater(row["ratio"], 0)
        self.assertEqual(rows[0]["ratio"], 1)
        self.assertLess(rows[1]["bytes_sent_max"], rows[0]["bytes_sent_max"])

    def test_steps_are_logged_for_watch_and_report_and_traced_for_browsers(self):
        with tempfile.TemporaryDirectory() as directory:
            steps, trace, page = (os.path.join(directory, name) for name in ("steps.jsonl", "trace.json", "page.html"))
            bench("--transport", "threads", "--ranks", "2", "--recipe", "topk:1%", "--steps", steps, "--trace", trace)
            with open(steps) as file:
                lines = [json.loads(line) for line in file]
            self.assertEqual([line["recipe"] for line in lines if line["step"] == 3], ["dense", "topk"])
            self.assertEqual(len(lines), 4)  # of two recipes, the timed ones
            for line in lines:
                self.assertEqual([each["parameter"] for each in line["parameters"]],
                                 ["parameter0", "parameter1", "parameter2"])
            with open(trace) as file:
                events = json.load(file)["traceEvents"]
            self.assertEqual({event["pid"] for event in events}, {0, 1})
            self.assertEqual(sum(event["name"] == "exchange" for event in events), 2 * 2 * 3)
            shown = run("watch", steps, "--once")
            self.assertRegex(shown.stdout, r"^step 4 .*exposed")
            self.assertEqual(shown.stderr, "")
            reported = run("report", steps, "-o", page)
            if "Chart.js" not in reported.stderr:
                self.assertEqual(reported.returncode, 0, reported.stderr)

    def test_back_propagation_hides_exchanges(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "rows.jsonl")
            for seconds in ("0", "0.5"):
                bench("--transport", "sim", "--ranks", "4", "--recipe", "topk:5%|dense_below:0",
                      "--back-propagation", seconds, "--json", path)
            with open(path) as file:
                plain, hidden = [row for row in map(json.loads, file) if row["recipe"] != "dense"]
        self.assertGreater(hidden["seconds_median"], 0.5)
        self.assertLess(hidden["exposed_seconds"], plain["exposed_seconds"])

    def test_bad_flags_are_named_with_what_is_allowed(self):
        for flags, words in {
            ("--recipe", "zip"): ["--recipe", "zip", "topk"],
            ("--shapes", "alexnet"): ["--shapes", "alexnet", "vgg16, resnet20, lstm"],
            ("--shapes", "10,x"): ["--shapes", "sizes"],
            ("--repeats", "0"): ["--repeats", "from 1 to"],
            ("--json", "/nonexistent/x"): ["--json", "/nonexistent/x"],
            ("--trace", "/tmp/x", "--recipe", "dense", "topk"): ["--trace", "one --recipe"],
            ("--back-propagation", "-1"): ["--back-propagation"],
        }.items():
            with self.subTest(flags=flags):
                refused = run("bench", "gradient", *flags)
                self.assertEqual(refused.returncode, 2, refused.stderr)
                for word in words:
                    self.assertIn(word, refused.stderr)

    def test_a_deadline_ends_it_with_a_message(self):
        failed = bench("--transport", "threads", "--recipe", "dense", "--deadline", "1e-9")
        self.assertEqual(failed.returncode, 1)
        self.assertIn("did not finish within", failed.stderr)

    def test_help_shows_examples(self):
        self.assertIn("Examples:", run("bench", "gradient", "--help").stdout)

    @unittest.skipUnless(MPIRUN, "built without MPI")
    def test_three_ranks_under_mpirun(self):
        recipes = ["dense", "topk:5%"]
        result = bench("--recipe", *recipes, launcher=MPIRUN)
        self.expect_rows(result, recipes)
        self.assertIn("3 ranks over mpi", result.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
