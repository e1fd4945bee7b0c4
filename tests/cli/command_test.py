"""The tulle command as its users run it. TULLE is the program, TULLE_MPIRUN what starts three ranks of it, or empty."""
import json
import os
import shlex
import shutil
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


class ComparisonCase(unittest.TestCase):
    def expect_comparison(self, result, densities, rows):
        self.expect_rows(result, ["auto", *rows] * densities)

    def expect_rows(self, result, rows):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        lines = [line for line in result.stdout.splitlines() if line and line[0] != "#"]
        self.assertEqual([line.split()[3].split("=")[0] for line in lines], rows)
        for line in lines:
            self.assertTrue(line.endswith("OK"), line)


class Command(ComparisonCase):
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

    def test_a_row_in_the_place_of_auto_is_refused(self):
        refused = bench("--transport", "sim", TULLE_ALGORITHM="dense_ring")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("TULLE_ALGORITHM", refused.stderr)
        self.assertIn("dense_ring", refused.stderr)
        self.assertEqual(bench("--transport", "sim", TULLE_ALGORITHM="auto").returncode, 0)
        named = bench("--transport", "sim", "--algorithm", "two_level", "--density", "0.01", TULLE_ALGORITHM="dense_ring")
        self.expect_rows(named, ["two_level"])

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
            ("--transport", "tcp"): ["--transport", "TULLE_RANK", "tulle run"],
            ("--transport", "udp"): ["--transport", "tcp, threads, sim"],
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
        for words, allowed in {(): "list, run, bench", ("race",): "list, run, bench", ("bench",): "allreduce"}.items():
            refused = run(*words)
            self.assertEqual(refused.returncode, 2)
            self.assertIn(allowed, refused.stderr)

    def test_a_misspelt_flag_or_command_is_guessed(self):
        for words, guess in {
            ("bnech",): "did you mean 'bench'?",
            ("bench", "allreduce", "--densty=0.1"): "did you mean '--density'?",
            ("bench", "allreduce", "--algorithm", "dense_rign"): "did you mean 'dense_ring'?",
            ("train", "linaer"): "did you mean 'linear'?",
        }.items():
            refused = run(*words)
            self.assertEqual(refused.returncode, 2)
            self.assertIn(guess, refused.stderr)

    def test_threads_compare_all_rows(self):
        self.expect_comparison(bench("--transport", "threads", "--ranks", "3", "--density", "0.01", "0.2"), 2, ROWS)

    def test_the_simulator_compares_all_rows_on_a_virtual_clock(self):
        first = bench("--transport", "sim", "--ranks", "5", "--density", "0.01,0.2")
        self.expect_comparison(first, 2, ROWS)
        self.assertIn("times are virtual", first.stdout)
        again = bench("--transport", "sim", "--ranks", "5", "--density", "0.01,0.2")
        rows = [[line for line in result.stdout.splitlines() if line[0] != "#"] for result in (first, again)]
        self.assertEqual(*rows)

    def test_rows_that_select_are_compared_with_k(self):
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


class BytesOfFiles(unittest.TestCase):
    """What a file holds is shown, and never acted on by the terminal."""

    ESCAPE = b"\x1b]0;owned\x07\x9b31m"
    SHOWN = r"\x1b]0;owned\x07\x9b31m"

    def expect_harmless(self, content, *command):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            file.write(content)
            file.flush()
            done = subprocess.run([TULLE, *command, file.name], capture_output=True, timeout=50)
        for output in (done.stdout, done.stderr):
            self.assertNotRegex(output, rb"[\x00-\x09\x0b-\x1f\x7f-\x9f]", output)
        return (done.stdout + done.stderr).decode()

    def test_a_bad_line_of_data(self):
        said = self.expect_harmless(b"1 1:1\n" + self.ESCAPE + b" 2:1\n", "train", "linear", "--data")
        self.assertIn(self.SHOWN, said)

    def test_a_label_that_is_no_number(self):
        self.expect_harmless(b"1," + self.ESCAPE + b"\n", "train", "linear", "--format", "csv", "--data")

    def test_a_bad_row_of_results(self):
        self.expect_harmless(b'{"kind": "' + self.ESCAPE + b'"}\n', "report", "-o", os.devnull)
        self.expect_harmless(b'{"kind": "allreduce", "algorithm": "' + self.ESCAPE, "report", "-o", os.devnull)

    def test_the_name_of_a_network(self):
        name = rb'{"preset": "gige", "name": "\u001b[31m\u009b1mred"}'
        said = self.expect_harmless(name, "simulate", "--ranks", "2", "--dimension", "1K", "--network")
        self.assertIn("red", said)

    def test_the_name_of_an_algorithm_in_stats(self):
        said = self.expect_harmless(rb'{"step": 1, "algorithm": "\u001b[31mred", "loss": 1}' + b"\n", "watch", "--once")
        self.assertIn("step 1", said)


@unittest.skipUnless(MPIRUN, "built without MPI")
class UnderMpirun(ComparisonCase):
    def test_three_ranks_compare_all_rows_and_mpi(self):
        rows = [*ROWS, "mpi_native"]
        result = bench("--density", "0.01", launcher=MPIRUN)
        self.expect_comparison(result, 1, rows)
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

    def test_the_launcher_of_another_mpi_is_refused_once(self):
        is_open_mpi = "--oversubscribe" in MPIRUN
        other = shutil.which("mpirun.mpich" if is_open_mpi else "mpirun.openmpi")
        if not other:
            self.skipTest("there is no other MPI")
        flags = ["-n", "3"] if is_open_mpi else ["-n", "3", "--oversubscribe", "--allow-run-as-root"]
        refused = bench(launcher=[other, *flags])
        self.assertNotEqual(refused.returncode, 0)
        self.assertEqual(refused.stderr.count("tulle: rank 0: MPI has 1 rank, and "), 1, refused.stderr)
        self.assertIn("says that the launcher started 3: is it the launcher of another MPI?", refused.stderr)
        self.assertNotIn("dense_ring", refused.stdout)

    def test_list_is_printed_once(self):
        self.assertEqual(run("list", launcher=MPIRUN).stdout, run("list").stdout)

    def test_every_rank_says_that_the_deadline_has_passed(self):
        failed = bench("--deadline", "1e-9", launcher=MPIRUN)
        self.assertEqual(failed.returncode, 1)
        self.assertRegex(failed.stderr, "did not finish within 1e-09 s")
        for rank in range(3):
            self.assertEqual(failed.stderr.count(f"tulle: rank {rank}: "), 1, failed.stderr)

    def run_script(self, name, **environment):
        done = subprocess.run([os.path.join(SOURCE, "scripts", name)], capture_output=True, text=True, timeout=100,
                              env={**os.environ, **environment})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_the_comparison_over_densities_runs(self):
        self.assertIn("MPI's own allreduce",
                      self.run_script("bench_densities", TULLE_DEMO_DIMENSION="64K", TULLE_DEMO_REPEATS="1"))

    def test_the_demo_runs(self):
        printed = self.run_script("demo", TULLE_DEMO_ROWS="2000", TULLE_DEMO_EPOCHS="1", TULLE_DEMO_LAB="0")
        self.assertIn("speed-up", printed)
        self.assertRegex(printed, r"\n(mpi_native|dense_\w+) +\1 ")
        self.assertRegex(printed, r"The fastest dense sum of \d+ values here is (mpi_native|dense_)")


if __name__ == "__main__":
    unittest.main(verbosity=2)
