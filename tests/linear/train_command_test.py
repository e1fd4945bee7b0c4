"""tulle train linear as its users run it: convert, train, predict, interrupt, kill and resume."""
import json
import os
import shlex
import signal
import subprocess
import tempfile
import time
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
        self.assertEqual((dense[:2], sparse[:2]), (["dense", "dense_rabenseifner"], ["sparse", "ssar_split_allgather"]))
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
                             ("--schedule", "fast"): ["--schedule", "adagrad"]}.items():
            refused = self.train(*flags)
            self.assertEqual(refused.returncode, 2, flags)
            for word in words:
                self.assertIn(word, refused.stderr)

    def interrupt(self, number, launcher=()):
        """Runs a job that would take long, sends it a signal, and gives how far its checkpoint came."""
        flags = ["--batch", "10", "--checkpoint", self.path("run"), "--checkpoint-seconds", "0.2"]
        job = subprocess.Popen([*launcher, TULLE, "train", "linear", "--data", self.path("rows.tcsr"), "--epochs", "100000",
                                *flags], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        deadline = time.monotonic() + 20
        while not os.path.exists(self.path("run")) and time.monotonic() < deadline:
            time.sleep(0.05)
        job.send_signal(number)
        printed, _ = job.communicate(timeout=20)
        epoch = int([line for line in printed.splitlines() if line.split() and line.split()[0].isdigit()][-1].split()[0])
        again = self.train(*flags, "--resume", "--epochs", str(epoch + 2), "--json", self.path("after"), launcher=launcher)
        self.assertEqual(again.returncode, 0, again.stderr)
        return epoch, self.epochs("after")[0]["epoch"], printed

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
        flags = ["--epochs", "2", "--batch", "100", "--aggregation", "sparse"]
        self.train(*flags, "--ranks", "3", "--json", self.path("threads"))
        told = self.train(*flags, "--json", self.path("mpi"), launcher=MPIRUN)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertEqual([line["objective"] for line in self.epochs("mpi")],
                         [line["objective"] for line in self.epochs("threads")])


if __name__ == "__main__":
    unittest.main(verbosity=2)
