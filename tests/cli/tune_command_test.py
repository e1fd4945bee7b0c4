"""tulle probe, explain and plan as their users run them. TULLE is the program, TULLE_MPIRUN what starts three ranks."""
import json
import os
import re
import shlex
import subprocess
import tempfile
import unittest

TULLE = os.environ["TULLE"]
MPIRUN = shlex.split(os.environ.get("TULLE_MPIRUN", ""))
QUICK = ("--rounds", "1", "--largest", "64K")


def run(*arguments, launcher=(), **environment):
    return subprocess.run([*launcher, TULLE, *arguments], capture_output=True, text=True, timeout=50,
                          env={**os.environ, "TULLE_LAB": "none", **environment})


def table_of(text, title):
    """The first words of the rows under the line that begins with `title`."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip().startswith(title)) + 1
    rows = []
    for line in lines[start:]:
        if not line.strip():
            break
        rows.append(line.split())
    return rows


class Case(unittest.TestCase):
    def succeed(self, *arguments, **how):
        done = run(*arguments, **how)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def expect_profile(self, profile, ranks, transport):
        self.assertEqual((profile["format"], profile["version"]), ("tulle profile", 1))
        self.assertEqual((profile["ranks"], profile["transport"]), (ranks, transport))
        for name, spread in {**profile["constants"], **profile["also"]}.items():
            self.assertLessEqual(spread["first_quartile"], spread["value"], name)
            self.assertLessEqual(spread["value"], spread["third_quartile"], name)
        for name, spread in profile["constants"].items():
            if "gamma" in name:
                self.assertGreater(spread["value"], 0, name)


class Probe(Case):
    def test_a_profile_is_written_and_used(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "net.json")
            printed = self.succeed("probe", "--ranks", "2", *QUICK, "-o", path)
            with open(path) as file:
                profile = json.load(file)
            self.expect_profile(profile, 2, "threads")
            shown = [row[0] for row in table_of(printed, "constant")]
            self.assertEqual(shown[:len(profile["constants"])], list(profile["constants"]))
            self.assertIn(path, self.succeed("explain", "--profile", path))
            self.succeed("bench", "allreduce", "--profile", path, "--transport", "threads", "--dimension", "4K",
                         "--repeats", "1", "--density", "0.01", "--algorithm", "auto")

    def test_a_simulated_network_is_found_again(self):
        profile = json.loads(self.succeed("probe", "--transport", "sim", "--ranks", "4", "--rounds", "1", "--json"))
        self.expect_profile(profile, 4, "sim")
        self.assertAlmostEqual(profile["constants"]["alpha_seconds"]["value"], 2e-6, delta=1e-7)
        self.assertAlmostEqual(profile["constants"]["beta_seconds_per_byte"]["value"], 1e-10, delta=2e-12)

    def test_a_progress_line_appears_on_request(self):
        done = run("probe", "--ranks", "2", "--rounds", "5", TULLE_PROGRESS="1")
        self.assertRegex(done.stderr, r" of \d+")

    def test_a_file_that_cannot_be_written_is_told(self):
        failed = run("probe", "--ranks", "1", *QUICK, "-o", "/nonexistent/net.json")
        self.assertEqual(failed.returncode, 1)
        self.assertIn("/nonexistent/net.json", failed.stderr)

    @unittest.skipUnless(MPIRUN, "built without MPI")
    def test_three_ranks_of_mpi_are_probed_and_load_what_was_found(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "net.json")
            self.expect_profile(json.loads(self.succeed("probe", *QUICK, "--json", "-o", path, launcher=MPIRUN)), 3, "mpi")
            bench = ("bench", "allreduce", "--dimension", "4K", "--repeats", "1", "--density", "0.01", "--algorithm", "auto")
            self.succeed(*bench, launcher=MPIRUN, TULLE_PROFILE=path)
            with open(path, "w") as file:
                file.write('{"format": "tulle profile", "version": 7}')
            failed = run(*bench, launcher=MPIRUN, TULLE_PROFILE=path)
            self.assertEqual(failed.returncode, 1)
            self.assertEqual(failed.stderr.count("'version' is 7"), 1, failed.stderr)

    @unittest.skipUnless(MPIRUN, "built without MPI")
    def test_a_profile_decides_what_auto_takes_under_mpirun(self):
        chosen = {}
        with tempfile.TemporaryDirectory() as directory:
            path, rows = os.path.join(directory, "net.json"), os.path.join(directory, "rows.jsonl")
            profile = json.loads(self.succeed("probe", "--ranks", "2", *QUICK, "--json"))
            for alpha in (1.0, 0.0):  # only few messages pay, then only few bytes
                for name in ("alpha_seconds", "node_alpha_seconds"):
                    profile["constants"][name] = {"value": alpha, "first_quartile": alpha, "third_quartile": alpha}
                profile["constants"]["beta_seconds_per_byte"] = {"value": 1e-7, "first_quartile": 0, "third_quartile": 1}
                with open(path, "w") as file:
                    json.dump(profile, file)
                self.succeed("bench", "allreduce", "--dimension", "64K", "--repeats", "1", "--density", "0.01",
                             "--algorithm", "auto", "--json", rows, launcher=MPIRUN, TULLE_PROFILE=path)
            with open(rows) as file:
                chosen = [json.loads(line)["chosen"] for line in file]
        self.assertIn(chosen[0], ("ssar_recursive_double", "two_level"))
        self.assertNotEqual(chosen[1], chosen[0])


class Explain(Case):
    def test_text_and_json_say_the_same(self):
        flags = ("explain", "--ranks", "8", "--dimension", "16M", "--density", "1%", "--network", "gige")
        text, data = self.succeed(*flags), json.loads(self.succeed(*flags, "--json"))
        names = [row["algorithm"] for row in data["rows"]]
        self.assertEqual([row[0] for row in table_of(text, "algorithm")], names)
        listed = json.loads(self.succeed("list", "--json"))
        exact = [row["name"] for row in listed if row["kind"] == "allreduce" and row["exactness"] == "exact"
                 and row["needs"] == "messages"]
        self.assertEqual(sorted(names), sorted(exact))
        self.assertIn(f"{names[0]} wins, {names[1]} is next", text)
        for row in data["rows"]:
            parts = row["alpha_seconds"] + row["beta_seconds"] + row["gamma_seconds"]
            self.assertAlmostEqual(parts / row["seconds"], 1, places=3)
        densities = [turn["density"] for turn in data["crossovers"]]
        self.assertEqual(densities, sorted(densities))
        self.assertEqual(len(table_of(text, "from density")), len(densities) + 1)
        self.assertEqual({bound["name"] for bound in data["bounds"]},
                         {"identical_indices", "disjoint_indices", "fill_in", "twice_dense", "two_over_kappa", "entropy"})

    def test_layers_turn_where_redsync_says(self):
        flags = ("explain", "--density", "0.1%", "--alpha", "0", "--beta", "2.857142857e-10", "--layer-bytes", "64K", "16M",
                 "--select-overhead", "6e-5")
        layers = json.loads(self.succeed(*flags, "--json"))["redsync"]
        self.assertEqual([layer["best"] for layer in layers["layers"]], ["dense", "sparse"])
        self.assertLess(64 * 1024, layers["turning_bytes"])
        self.assertIn("Sparse synchronization wins from", self.succeed(*flags))

    def test_bad_flags_are_named(self):
        for flags, words in {
            ("--ranks", "1"): ["--ranks", "from 2"],
            ("--network", "token_ring"): ["--network", "gige"],
            ("--profile", "/nonexistent/p.json"): ["--profile", "/nonexistent/p.json"],
            ("--density", "2"): ["--density", "from 0 to 1"],
            ("--dimension", "0"): ["--dimension", "1 or more"],
            ("--index-coding", "zip"): ["--index-coding", "rice"],
            ("--input", "file"): ["--input", "stream, accumulator"],
        }.items():
            with self.subTest(flags=flags):
                refused = run("explain", *flags)
                self.assertEqual((refused.returncode, refused.stdout), (2, ""))
                for word in words:
                    self.assertIn(word, refused.stderr)

    @unittest.skipUnless(MPIRUN, "built without MPI")
    def test_it_is_printed_once_under_mpirun(self):
        self.assertEqual(run("explain", launcher=MPIRUN).stdout, self.succeed("explain"))


class Plan(Case):
    def test_the_map_agrees_with_json_and_with_explain(self):
        flags = ("--dimension", "1M", "--network", "gige")
        plan = ("plan", *flags, "--ranks", "2", "16", "--density", "0.01%", "1%", "50%")
        cells = json.loads(self.succeed(*plan, "--json"))["cells"]
        self.assertEqual([(cell["ranks"], cell["density"]) for cell in cells],
                         [(ranks, density) for ranks in (2, 16) for density in (1e-4, 0.01, 0.5)])
        text = self.succeed(*plan)
        legend = dict(re.findall(r"^  ([A-Z])  (\w+):", text, re.MULTILINE))
        lines = [line.split() for line in text.splitlines() if re.match(r" +\d+  ", line)]
        drawn = [legend[line[i]] for line in lines for i in (1, 3, 5)]
        self.assertEqual(drawn, [cell["algorithm"] for cell in cells])
        self.assertNotIn("\033", text)
        for cell in cells:
            told = json.loads(self.succeed("explain", *flags, "--ranks", str(cell["ranks"]), "--density",
                                           str(cell["density"]), "--json"))
            self.assertEqual(told["rows"][0]["algorithm"], cell["algorithm"])
            self.assertAlmostEqual(told["rows"][0]["seconds"], cell["seconds"])
            self.assertGreaterEqual(cell["speed_up"], 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
