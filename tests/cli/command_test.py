"""The tulle command as its users run it. TULLE is the program, TULLE_MPIRUN what starts three ranks of it, or empty."""
import json
import os
import shlex
import subprocess
import tempfile
import unittest

TULLE = os.environ["TULLE"]
MPIRUN = shlex.split(os.environ.get("TULLE_MPIRUN", ""))
SOURCE = os.environ["TULLE_SOURCE"]
ROWS = ["ssar_recursive_double", "ssar_split_allgather", "dsar_split_allgather", "two_level", "dense_recursive_double",
        "dense_ring", "dense_rabenseifner", "dense_split_allgather"]
FIELDS = {"algorithm", "ranks", "dimension", "density", "overlap", "type", "seconds_median", "seconds_q1", "seconds_q3",
          "bytes_sent_max", "bytes_sent_total", "nnz_result", "verified", "transport", "chosen", "messages", "host",
          "cpu", "cores", "compiler", "mpi", "tulle_version", "git_commit", "timestamp", "lab"}


def run(*arguments, launcher=(), **environment):
    return subprocess.run([*launcher, TULLE, *arguments], capture_output=True, text=True, timeout=50,
                          env={**os.environ, "TULLE_LAB": "none", **environment})


def bench(*arguments, launcher=(), **environment):
    return run("bench", "allreduce", "--dimension", "4K", "--repeats", "2", *arguments, launcher=launcher,
               **environment)


class RaceCase(unittest.TestCase):
    def expect_race(self, result, densities, rows):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        lines = [line for line in result.stdout.splitlines() if line and line[0] != "#"]
        self.assertEqual([line.split()[3].split("=")[0] for line in lines], ["auto", *rows] * densities)
        for line in lines:
            self.assertTrue(line.endswith("OK"), line)


class Command(RaceCase):
    def test_list_prints_every_row(self):
        listed = run("list")
        self.assertEqual(listed.returncode, 0)
        names = [line.split()[0] for line in listed.stdout.splitlines()[1:]]
        rows = json.loads(run("list", "--json").stdout)
        self.assertEqual(names, [row["name"] for row in rows])
        self.assertTrue(set(ROWS) | {"mpi_native", "reduce", "broadcast"} <= set(names))
        for row in rows:
            self.assertEqual(set(row), {"name", "kind", "exactness", "needs", "paper", "summary"})

    def test_help_and_version_succeed(self):
        self.assertIn("Examples:", run("--help").stdout)
        self.assertRegex(run("--version").stdout, r"^tulle \d+\.\d+\.\d+\n$")
        self.assertEqual(run("bench", "allreduce", "--help").returncode, 0)

    def test_a_race_of_one_row_under_many_names_is_refused(self):
        refused = bench("--transport", "sim", TULLE_ALGORITHM="dense_ring")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("TULLE_ALGORITHM", refused.stderr)
        self.assertIn("dense_ring", refused.stderr)
        self.assertEqual(bench("--transport", "sim", TULLE_ALGORITHM="auto").returncode, 0)

    def test_bad_flags_are_named_with_what_is_allowed(self):
        for flags, words in {
            ("--type", "f99"): ["--type", "f99", "f32, f64, f16, bf16, i32, i64"],
            ("--overlap", "some"): ["--overlap", "uniform, identical, disjoint, zipf"],
            ("--op", "mean"): ["--op", "sum, prod, min, max"],
            ("--op", "bit_or"): ["--op", "i32 and i64"],
            ("--algorithm", "auto", "ring"): ["--algorithm", "'ring'", "all, auto", *ROWS],
            ("--algorithm", "mpi_native"): ["--algorithm", "mpirun"],
            ("--algorithm", "spardl"): ["--algorithm", "needs --k"],
            ("--k", "1%", "--algorithm", "dense_ring"): ["--algorithm", "does not take --k", "spardl, topka"],
            ("--k", "2M"): ["--k", "more than the dimension"],
            ("--k", "1%", "--type", "i32"): ["--type", "f32"],
            ("--residual", "some"): ["--residual", "global, partial, local"],
            ("--index-coding", "zip"): ["--index-coding", "auto, smallest, raw"],
            ("--value-coding", "zip"): ["--value-coding", "qsgd"],
            ("--value-coding", "qsgd", "--algorithm", "dense_ring"): ["--algorithm", "sends values as they are"],
            ("--transport", "tcp"): ["--transport", "threads, sim"],
            ("--density", "0.1,2"): ["--density", "'2'", "from 0 to 1"],
            ("--density", "-1"): ["--density", "'-1'", "from 0 to 1"],
            ("--dimension", "many"): ["--dimension", "2^24"],
            ("--dimension",): ["--dimension"],
            ("--repeats", "0"): ["--repeats", "from 1 to"],
            ("--json", "/nonexistent/x"): ["--json", "/nonexistent/x"],
            ("--colour", "red"): ["--colour", "--dimension", "--density", "--algorithm"],
        }.items():
            with self.subTest(flags=flags):
                refused = run("bench", "allreduce", *flags)
                self.assertEqual(refused.returncode, 2)
                self.assertEqual(refused.stdout, "")
                for word in words:
                    self.assertIn(word, refused.stderr)

    def test_a_missing_or_unknown_command_is_told(self):
        for words, allowed in {(): "list, bench", ("race",): "list, bench", ("bench",): "allreduce"}.items():
            refused = run(*words)
            self.assertEqual(refused.returncode, 2)
            self.assertIn(allowed, refused.stderr)

    def test_threads_race_all_rows(self):
        self.expect_race(bench("--transport", "threads", "--ranks", "3", "--density", "0.01", "0.2"), 2, ROWS)

    def test_the_simulator_races_all_rows_on_a_virtual_clock(self):
        first = bench("--transport", "sim", "--ranks", "5", "--density", "0.01,0.2")
        self.expect_race(first, 2, ROWS)
        self.assertIn("times are virtual", first.stdout)
        again = bench("--transport", "sim", "--ranks", "5", "--density", "0.01,0.2")
        rows = [[line for line in result.stdout.splitlines() if line[0] != "#"] for result in (first, again)]
        self.assertEqual(*rows)

    def test_rows_that_select_race_with_k(self):
        result = bench("--transport", "sim", "--ranks", "6", "--k", "1%,64", "--teams", "3")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        lines = [line.split() for line in result.stdout.splitlines() if line and line[0] != "#"]
        self.assertEqual([line[2].split("=")[0] for line in lines],
                         ["auto", "spardl", "topka", "topkdsa", "gtopk", "oktopk"] * 2)
        self.assertEqual({line[1] for line in lines}, {"41", "64"})
        for line in lines:
            self.assertEqual(line[-1], "OK")

    def test_codings_change_bytes_and_pass_the_check(self):
        sent = {}
        for coding in ("raw", "rice"):
            result = run("bench", "allreduce", "--transport", "sim", "--algorithm", "ssar_split_allgather", "--density",
                         "0.01", "--dimension", "2^18", "--index-coding", coding)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            sent[coding] = int(result.stdout.splitlines()[-1].split()[7])
        self.assertLess(sent["rice"], 0.7 * sent["raw"])
        coded = bench("--transport", "sim", "--density", "0.2", "--value-coding", "qsgd:bits=4")
        self.assertEqual(coded.returncode, 0, coded.stdout + coded.stderr)

    def test_rows_are_appended_as_json(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "rows.jsonl")
            for _ in range(2):
                bench("--transport", "threads", "--ranks", "3", "--density", "0.01", "--json", path)
            with open(path) as file:
                rows = [json.loads(line) for line in file]
        self.assertEqual([row["algorithm"] for row in rows], ["auto", *ROWS] * 2)
        for row in rows:
            self.assertLessEqual(FIELDS, set(row))
            self.assertTrue(row["verified"])
            self.assertEqual((row["ranks"], row["dimension"], row["transport"]), (3, 4096, "threads"))
            self.assertLessEqual(row["seconds_q1"], row["seconds_median"])
            self.assertLessEqual(row["seconds_median"], row["seconds_q3"])
            self.assertIn(row["chosen"], ROWS)

    def test_an_error_of_the_library_gives_exit_code_1_and_its_message(self):
        failed = bench("--transport", "threads", "--deadline", "1e-9")
        self.assertEqual(failed.returncode, 1)
        self.assertIn("did not finish within", failed.stderr)

    def test_the_summary_is_two_sentences(self):
        text = bench("--transport", "sim", "--density", "0.01", "--summary").stdout.split("\n\n")[-1]
        self.assertEqual(len(text.splitlines()), 2)
        self.assertIn("equal the serial sum", text)

    def test_a_progress_line_appears_on_request_and_goes_away(self):
        shown = run("bench", "allreduce", "--transport", "sim", "--ranks", "16", "--dimension", "2^20", "--repeats", "8",
                    TULLE_PROGRESS="1")
        self.assertIn(" of 270", shown.stderr)
        self.assertTrue(shown.stderr.endswith("\033[K"))
        self.assertEqual(bench("--transport", "sim").stderr, "")


@unittest.skipUnless(MPIRUN, "built without MPI")
class UnderMpirun(RaceCase):
    def test_three_ranks_race_all_rows_and_mpi(self):
        rows = [*ROWS, "mpi_native"]
        result = bench("--density", "0.01", launcher=MPIRUN)
        self.expect_race(result, 1, rows)
        self.assertIn("3 ranks over mpi", result.stdout)

    def test_a_bad_flag_is_told_once(self):
        refused = run("bench", "allreduce", "--type", "f99", launcher=MPIRUN)
        self.assertEqual(refused.returncode, 2)
        self.assertEqual(refused.stderr.count("f32, f64, f16, bf16, i32, i64"), 1)
        self.assertEqual(refused.stdout, "")

    def test_transport_and_ranks_are_up_to_mpirun(self):
        for flags in (("--transport", "threads"), ("--ranks", "3")):
            refused = bench(*flags, launcher=MPIRUN)
            self.assertEqual(refused.returncode, 2)
            self.assertEqual(refused.stderr.count(flags[0] + ":"), 1)

    def test_list_is_printed_once(self):
        self.assertEqual(run("list", launcher=MPIRUN).stdout, run("list").stdout)

    def test_an_error_of_the_library_is_told_once_and_ends_the_job(self):
        failed = bench("--deadline", "1e-9", launcher=MPIRUN)
        self.assertEqual(failed.returncode, 1)
        self.assertEqual(failed.stderr.count("tulle: "), 1, failed.stderr)

    def run_script(self, name, **environment):
        done = subprocess.run([os.path.join(SOURCE, "scripts", name)], capture_output=True, text=True, timeout=100,
                              env={**os.environ, **environment})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_the_race_over_densities_runs(self):
        self.assertIn("MPI's own allreduce",
                      self.run_script("bench_densities", TULLE_DEMO_DIMENSION="64K", TULLE_DEMO_REPEATS="1"))

    def test_the_demo_runs(self):
        printed = self.run_script("demo", TULLE_DEMO_ROWS="2000", TULLE_DEMO_EPOCHS="1", TULLE_DEMO_LAB="0")
        self.assertIn("speed-up", printed)
        self.assertRegex(printed, r"\ndense +mpi_native ")



if __name__ == "__main__":
    unittest.main(verbosity=2)
