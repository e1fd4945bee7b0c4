"""tulle train linear as its users run it: convert, train, predict, interrupt, kill and resume."""
import json
import os
import shlex
import signal
import subprocess
import tempfile
import threading
import unittest

TULLE = os.environ["TULLE"]
MPIRUN = shlex.split(os.environ.get("TULLE_MPIRUN", ""))


def run(*arguments, launcher=()):
    return subprocess.run([*launcher, TULLE, *arguments], capture_output=True, text=True, timeout=60)


class TrainCommand(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        made = run("generate", "--rows", "4000", "--features", "50000", "--nonzeros", "30", self.path("rows.tcsr"))
        self.assertEqual(made.returncode, 0, made.stderr)

    def path(self, name):
        return os.path.join(self.directory.name, name)

    def train(self, *flags, launcher=()):
        return run("train", "linear", "--data", self.path("rows.tcsr"), *flags, launcher=launcher)

    def epochs(self, name):
        with open(self.path(name)) as lines:
            return [json.loads(line) for line in lines]

    def test_trains_saves_and_predicts(self):
        trained = self.train("--hold-out", "10%", "--epochs", "3", "--batch", "100", "--out", self.path("model"),
                             "--json", self.path("epochs"))
        self.assertEqual(trained.returncode, 0, trained.stderr)
        epochs = self.epochs("epochs")
        self.assertEqual([line["epoch"] for line in epochs], [1, 2, 3])
        self.assertGreater(epochs[-1]["held_out"]["auc"], 0.7)
        predicted = run("predict", "--model", self.path("model"), "--data", self.path("rows.tcsr"), "--json", "--out",
                        self.path("labels"), "--probabilities")
        self.assertGreater(json.loads(predicted.stdout)["accuracy"], 0.8)
        with open(self.path("labels")) as lines:
            self.assertEqual(len(lines.readlines()), 4001)

    def test_compares_aggregations_in_a_closing_table(self):
        compared = self.train("--transport", "sim", "--ranks", "8", "--network", "gige", "--epochs", "1",
                              "--batch", "100", "--aggregation", "dense,sparse")
        dense, sparse = [line.split() for line in compared.stdout.splitlines()[-2:]]
        self.assertEqual((dense[:2], sparse[:2]), (["dense", "auto_dense"], ["sparse", "auto_sparse"]))
        self.assertEqual(dense[2], sparse[2])  # the loss
        self.assertGreater(float(sparse[-1]), 1)

    def test_a_bad_line_is_told_with_file_and_number(self):
        with open(self.path("bad.svm"), "w") as file:
            file.write("1 1:1\n-1 2:1\n1 3:x\n")
        for flags in ((), ("--ranks", "3")):
            refused = run("train", "linear", "--data", self.path("bad.svm"), *flags)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("bad.svm:3:5: expected a finite number", refused.stderr)
        skipped = run("train", "linear", "--data", self.path("bad.svm"), "--ranks", "2", "--skip-bad", "--epochs", "1",
                      "--hold-out", "0.1%")
        self.assertIn("skipped 1 bad lines", skipped.stdout)  # whichever rank met it
        self.assertIn("2 rows of 2 features", skipped.stdout)
        converted = run("convert", "--skip-bad", self.path("bad.svm"), self.path("good.tcsr"))
        self.assertIn("skipped 1 bad lines", converted.stdout)

    def test_bad_flags_are_named(self):
        for flags, words in {("--model", "tree"): ["--model", "logistic"], ("--l1", "-1"): ["--l1"],
                             ("--model", "lasso"): ["--l1", "lasso"], ("--resume",): ["--resume", "--checkpoint"],
                             ("--schedule", "fast"): ["--schedule", "adagrad"],
                             ("--solver", "scd", "--rate", "0.1"): ["--rate", "--solver sgd"],
                             ("--solver", "scd", "--batch", "10"): ["--batch", "--solver sgd"],
                             ("--solver", "scd", "--no-shuffle"): ["--no-shuffle", "--solver sgd"],
                             ("--coordinates", "10"): ["--coordinates", "--solver scd"],
                             ("--damping", "2"): ["--damping", "--solver scd"],
                             ("--decay", "0.5"): ["--decay", "--schedule"],
                             ("--patience", "3"): ["--patience", "--tolerance"],
                             ("--checkpoint-seconds", "3"): ["--checkpoint-seconds", "--checkpoint"]}.items():
            refused = self.train(*flags)
            self.assertEqual(refused.returncode, 2, flags)
            for word in words:
                self.assertIn(word, refused.stderr)

    def interrupt(self, number, launcher=()):
        """Runs a job that would take long, sends it a signal, and gives how far its checkpoint came."""
        flags = ["--batch", "10", "--checkpoint", self.path("run"), "--checkpoint-seconds", "0.2"]
        job = subprocess.Popen([*launcher, TULLE, "train", "linear", "--data", self.path("rows.tcsr"), "--epochs", "100000",
                                *flags], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        ends_a_hang = threading.Timer(60, job.kill)
        ends_a_hang.start()
        lines = []
        for line in job.stdout:  # until an epoch is over and a checkpoint is there
            lines.append(line)
            if line.split() and line.split()[0].isdigit() and os.path.exists(self.path("run")):
                break
        job.send_signal(number)
        rest, _ = job.communicate(timeout=20)
        ends_a_hang.cancel()
        printed = "".join(lines) + rest
        epoch = int([line for line in printed.splitlines() if line.split() and line.split()[0].isdigit()][-1].split()[0])
        again = self.train(*flags, "--resume", "--epochs", str(epoch + 2), "--json", self.path("after"), launcher=launcher)
        self.assertEqual(again.returncode, 0, again.stderr)
        return epoch, self.epochs("after")[0]["epoch"], printed

    def test_outputs_are_tried_before_the_training(self):
        for flag in "--out", "--checkpoint":
            for path, word in (self.path("missing/file"), "No such file"), ("/dev/null", "not a regular file"):
                refused = self.train(flag, path)
                self.assertEqual((refused.returncode, refused.stdout), (2, ""))
                self.assertIn(flag, refused.stderr)
                self.assertIn(word, refused.stderr)

    def test_features_are_those_of_all_ranks(self):
        with open(self.path("rows.svm"), "w") as rows:
            rows.writelines(f"{1 - 2 * (row % 2)} {1 if row < 50 else 899}:1\n" for row in range(100))
        trained = run("train", "linear", "--data", self.path("rows.svm"), "--epochs", "1", "--transport", "threads",
                      "--ranks", "2")
        self.assertIn("100 rows of 899 features", trained.stdout)

    def test_resume_says_where_it_goes_on(self):
        flags = ("--transport", "threads", "--ranks", "2", "--checkpoint", self.path("run"), "--resume")
        self.assertIn("is not there: starts from the beginning", self.train(*flags, "--epochs", "1").stdout)
        self.assertIn("goes on from", self.train(*flags, "--epochs", "2").stdout)
        refused = self.train(*flags, "--no-intercept")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("intercept was true, and is false now", refused.stderr)

    def test_regression_has_no_accuracy(self):
        trained = self.train("--model", "least_squares", "--hold-out", "10%", "--epochs", "1", "--rate", "0.01",
                             "--aggregation", "dense,sparse", "--json", self.path("epochs"))
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertNotIn("accuracy", self.epochs("epochs")[0]["held_out"])
        self.assertNotIn(" 0.0000 ", trained.stdout)

    def test_there_is_no_area_under_the_curve_of_one_class(self):
        self.train("--epochs", "1", "--out", self.path("model"))
        with open(self.path("ones.svm"), "w") as rows:
            rows.writelines(f"1 {row + 1}:1\n" for row in range(10))
        flags = ("predict", "--model", self.path("model"), "--data", self.path("ones.svm"))
        self.assertIn("accuracy", run(*flags).stdout)
        self.assertNotIn("AUC", run(*flags).stdout)
        self.assertNotIn("auc", json.loads(run(*flags, "--json").stdout))

    def test_what_diverges_ends_with_an_error_and_leaves_no_file(self):
        for flags in (("--schedule", "constant", "--rate", "1e6"), ("--rate", "1e35")):
            told = self.train("--model", "least_squares", *flags, "--epochs", "50", "--out", self.path("model"),
                              "--checkpoint", self.path("run"))
            self.assertEqual(told.returncode, 1, told.stdout)
            self.assertIn("diverged in epoch", told.stderr)
            self.assertFalse(os.path.exists(self.path("model")) or os.path.exists(self.path("run")))

    def test_the_objective_at_the_end_is_that_of_the_model(self):
        trained = self.train("--epochs", "2", "--l2", "1e-3")
        self.assertIn("running", trained.stdout)
        self.assertRegex(trained.stdout.splitlines()[-1], r"^objective 0\.\d+ on all rows, \d+ of 50000 weights are not 0$")

    @unittest.skipUnless(MPIRUN, "built without MPI")
    def test_ranks_of_mpi_with_different_flags_are_told_which(self):
        with open(self.path("other.svm"), "w") as rows:
            rows.writelines(f"{1 - 2 * (row % 2)} {row + 1}:1\n" for row in range(10))
        for other, words in {("--rate", "0.3"): "rate is 0.2 on ranks", ("--model", "hinge"): "--model is logistic on ranks",
                             ("--batch", "7"): "batch is 0 on ranks", ("--epochs", "9"): "epochs is 10 on ranks",
                             ("--data", self.path("other.svm")): "--data is"}.items():
            own = [TULLE, "train", "linear", "--data", self.path("rows.tcsr")]
            if other[0] == "--data":
                own = own[:-2]
            told = subprocess.run([*MPIRUN, TULLE, "train", "linear", "--data", self.path("rows.tcsr"), ":", "-np", "1",
                                   *own, *other], capture_output=True, text=True, timeout=60)
            self.assertNotEqual(told.returncode, 0)
            self.assertIn(words, told.stderr)

    def test_ctrl_c_saves(self):
        epoch, resumed, printed = self.interrupt(signal.SIGINT)
        self.assertIn("--resume goes on", printed)
        self.assertEqual(resumed, epoch + 1)

    def test_a_killed_job_goes_on_from_its_checkpoint(self):
        epoch, resumed, _ = self.interrupt(signal.SIGKILL)
        self.assertGreater(resumed, 1)
        self.assertLessEqual(resumed, epoch + 1)

    @unittest.skipUnless(MPIRUN, "built without MPI")
    def test_ctrl_c_under_mpirun_loses_no_more_than_a_checkpoint_ago(self):
        epoch, resumed, _ = self.interrupt(signal.SIGINT, launcher=MPIRUN)
        self.assertGreater(resumed, 1)
        self.assertLessEqual(resumed, epoch + 1)

    @unittest.skipUnless(MPIRUN, "built without MPI")
    def test_ranks_of_mpi_train_the_model_of_ranks_on_threads(self):
        flags = ["--epochs", "2", "--batch", "100", "--aggregation", "ssar_split_allgather"]
        self.train(*flags, "--ranks", "3", "--json", self.path("threads"))
        told = self.train(*flags, "--json", self.path("mpi"), launcher=MPIRUN)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertEqual([line["objective"] for line in self.epochs("mpi")],
                         [line["objective"] for line in self.epochs("threads")])


if __name__ == "__main__":
    unittest.main(verbosity=2)
