"""tulle train nn as its users run it: train, compare, interrupt and resume, on threads, MPI and TCP."""
import contextlib
import itertools
import json
import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest

TULLE = os.environ["TULLE"]
MPIRUN = shlex.split(os.environ.get("TULLE_MPIRUN", ""))


def run(*arguments, launcher=()):
    return subprocess.run([*launcher, TULLE, *arguments], capture_output=True, text=True, timeout=120)


def free_port():
    """A port that nobody has, below those that the system hands out by itself: so it stays free until it is used."""
    for number in itertools.count(31 * os.getpid()):
        port = 20_000 + number % 12_000
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def write_idx(path, shape, values):
    with open(path, "wb") as file:
        file.write(struct.pack(f">{1 + len(shape)}I", 0x800 + len(shape), *shape) + bytes(values))


class TrainNn(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.holder.cleanup)
        for name, count in ("train", 960), ("t10k", 100):  # pictures of 4×4: a bright pixel at the label's place
            labels = [(7 * i + i // 10) % 10 for i in range(count)]
            pixels = [200 if place == label else (31 * i + 17 * place) % 64
                      for i, label in enumerate(labels) for place in range(16)]
            write_idx(os.path.join(cls.holder.name, f"{name}-images-idx3-ubyte"), (count, 4, 4), pixels)
            write_idx(os.path.join(cls.holder.name, f"{name}-labels-idx1-ubyte"), (count,), labels)

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = lambda name: os.path.join(directory.name, name)

    def train(self, *flags, launcher=()):
        return run("train", "nn", "--data", self.holder.name, "--hidden", "32", "--batch", "8", "--rate", "0.02", *flags,
                   launcher=launcher)

    def epochs(self, name):
        with open(self.path(name)) as lines:
            return [json.loads(line) for line in lines]

    def test_an_object_of_json_for_each_epoch(self):
        trained = self.train("--model", "mlp", "--recipe", "topk:10%|dense_below:0", "--ranks", "4", "--epochs", "3",
                             "--json", self.path("epochs"))
        self.assertEqual(trained.returncode, 0, trained.stderr)
        epochs = self.epochs("epochs")
        self.assertEqual([line["epoch"] for line in epochs], [1, 2, 3])
        for line in epochs:
            self.assertEqual((line["recipe"], line["ranks"]), ("topk:10%|dense_below:0", 4))
            self.assertEqual(line["batch_norm"], "rank0")
            self.assertGreater(line["bytes_sent"], 0)
            self.assertGreaterEqual(line["seconds"], line["exposed_seconds"])
        self.assertGreater(epochs[-1]["accuracy"], 0.9)
        self.assertLess(epochs[-1]["loss"], epochs[0]["loss"])

    def test_recipes_are_compared_in_a_closing_table(self):
        compared = self.train("--ranks", "2", "--compare", "dense", "--compare", "topk:5%|dense_below:0")
        self.assertEqual(compared.returncode, 0, compared.stderr)
        dense, sparse = [line.split() for line in compared.stdout.splitlines()[-2:]]
        self.assertEqual((dense[0], sparse[0]), ("dense", "topk:5%|dense_below:0"))
        self.assertGreater(float(sparse[-1]), 2)  # times fewer bytes

    def test_recipes_that_cannot_run_are_told_before_any_trains(self):
        refused = self.train("--ranks", "4", "--compare", "dense", "--compare", "spardl:10%|teams:3|dense_below:0")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("--compare spardl:10%|teams:3|dense_below:0: 3 teams", refused.stderr)
        self.assertNotIn("epoch", refused.stdout)

    def test_files_and_whose_batch_norm_are_said(self):
        pictures = self.path("pictures")
        os.mkdir(pictures)
        for name, count in ("data_batch_2.bin", 8), ("test_batch.bin", 2):
            with open(os.path.join(pictures, name), "wb") as file:
                file.write(b"".join(bytes([i % 10]) + bytes([20 * (i % 10)]) * 3072 for i in range(count)))
        shown = run("train", "nn", "--data", pictures, "--model", "resnet20", "--ranks", "2", "--batch", "4",
                    "--batch-norm", "average", "--json", self.path("epochs"))
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn(f"{pictures}: trains on data_batch_2.bin; measures on test_batch.bin\n", shown.stdout)
        self.assertIn("8 pictures and 2 held out, batches of 4 a rank, BatchNorm average\n", shown.stdout)
        self.assertEqual(self.epochs("epochs")[0]["batch_norm"], "average")

    def test_every_launcher_gives_the_same_losses(self):
        launchers = {"threads": [], "tcp": [TULLE, "run", "-n", "3", "--"]}
        if MPIRUN:
            launchers["mpi"] = MPIRUN
        # Sums of few and of many values, of which the usual rows are not the same on all transports.
        for number, recipe in enumerate(["topk:10%|dense_below:0", "dense"]):
            for name, launcher in launchers.items():
                flags = ["--data", self.holder.name, "--hidden", "300,100", "--batch", "8", "--rate", "0.02",
                         "--recipe", recipe]
                trained = run("train", "nn", *flags, "--json", self.path(f"{name}{number}"),
                              *([] if launcher else ["--ranks", "3"]), launcher=launcher)
                self.assertEqual(trained.returncode, 0, trained.stderr)
                found, = self.epochs(f"{name}{number}")
                expected, = self.epochs(f"threads{number}")
                self.assertEqual((found["transport"], found["ranks"]), (name, 3))
                for field in "loss", "accuracy", "bytes_sent":
                    self.assertEqual(found[field], expected[field], (name, recipe, field))

    def test_a_parameter_server_under_every_launcher(self):
        flags = ("--server", "1", "--recipe", "three_lc:s=1.75", "--epochs", "3", "--json")
        shown = self.train("--workers", "2", *flags, self.path("threads"))
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn("1 server and 2 workers", shown.stdout)
        expected = self.epochs("threads")
        self.assertEqual([line["epoch"] for line in expected], [1, 2, 3])
        last = expected[-1]
        self.assertEqual((last["ranks"], last["servers"], last["workers"], last["reported"]), (3, 1, 2, 2))
        self.assertEqual((last["pushed"], last["dropped"]), (3 * 60 * 4 * 2, 0))  # epochs, steps, parameters, workers
        self.assertGreater(last["accuracy"], 0.9)
        self.assertGreaterEqual(last["seconds"], last["exposed_seconds"])
        launchers = {"tcp": [TULLE, "run", "-n", "3", "--"]}
        if MPIRUN:
            launchers["mpi"] = MPIRUN
        for name, launcher in launchers.items():
            trained = self.train(*flags, self.path(name), launcher=launcher)
            self.assertEqual(trained.returncode, 0, trained.stderr)
            for found, there in zip(self.epochs(name), expected, strict=True):
                self.assertEqual((found["transport"], found["ranks"]), (name, 3))
                for field in "loss", "accuracy", "bytes_sent", "pulled":
                    self.assertEqual(found[field], there[field], (name, field))

    def test_a_parameter_server_goes_on_from_its_checkpoint(self):
        flags = ("--server", "2", "--workers", "2", "--recipe", "one_bit", "--checkpoint", self.path("run"), "--resume",
                 "--json")
        for epochs in "1", "2":
            trained = self.train("--epochs", epochs, *flags, self.path("parts"))
            self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertIn("epoch 2, step 0 of it", trained.stdout)
        whole = self.train("--epochs", "2", "--server", "2", "--workers", "2", "--compare", "one_bit", "--compare",
                           "dense", "--json", self.path("whole"))
        self.assertEqual(whole.returncode, 0, whole.stderr)
        self.assertEqual(whole.stdout.splitlines()[-1].split()[0], "dense")
        for found, expected in zip(self.epochs("parts"), self.epochs("whole")[:2], strict=True):
            for field in "loss", "accuracy", "bytes_sent", "pushed":
                self.assertEqual(found[field], expected[field], field)

    def start(self, *flags, rank=None, size=4, port=None):
        """A process of a job that no launcher has started."""
        environment = dict(os.environ, PYTHONUNBUFFERED="1")
        if rank is not None:
            environment.update(TULLE_RANK=str(rank), TULLE_SIZE=str(size), TULLE_ADDRESS=f"127.0.0.1:{port}")
        with open(self.path(f"output.{rank}"), "w") as output:
            job = subprocess.Popen([TULLE, "train", "nn", "--data", self.holder.name, "--hidden", "32", "--batch", "8",
                                    "--rate", "0.02", "--server", "1", "--recipe", "one_bit", *flags], stdout=output,
                                   stderr=subprocess.STDOUT, env=environment)
        self.addCleanup(lambda: (job.kill(), job.wait()))
        return job

    def wait_for(self, name, pattern, jobs):
        """A match in what a process has printed or written, as long as all live that should."""
        while True:
            text = ""
            if os.path.exists(self.path(name)):
                with open(self.path(name)) as file:
                    text = file.read()
            found = re.search(pattern, text)
            if found:
                return found
            for job in jobs:
                self.assertIsNone(job.poll(), text)
            time.sleep(0.02)

    def test_a_new_process_takes_a_killed_workers_place(self):
        port = free_port()
        flags = ("--epochs", "1000000", "--door", "127.0.0.1:0")
        server, first, victim, last = jobs = [
            self.start(*flags, *(("--json", self.path("epochs")) if rank == 0 else ()), rank=rank, port=port)
            for rank in range(4)]
        ends_a_hang = threading.Timer(300, lambda: [job.kill() for job in jobs])
        ends_a_hang.start()
        self.addCleanup(ends_a_hang.cancel)
        door = self.wait_for("output.0", r"place can be taken at port (\d+)\n", jobs).group(1)
        self.wait_for("epochs", r'"epoch":2,', jobs)
        victim.kill()
        living = [server, first, last]
        self.wait_for("output.0", r"the worker of rank 2 is lost.*\n", living)
        first.send_signal(signal.SIGSTOP)  # the others wait for it, and use no processor while the newcomer starts
        newcomer = self.start("--epochs", "1000000", "--join", f"127.0.0.1:{door}")
        living.append(newcomer)
        jobs.append(newcomer)
        self.wait_for("output.None", r"has the place of the worker of rank 2: goes on in epoch \d+, step \d+", living)
        self.wait_for("output.0", r"a new process has the place of the worker of rank 2\n", living)
        first.send_signal(signal.SIGCONT)
        with open(self.path("epochs")) as lines:
            before = lines.read().count("\n")
        self.wait_for("epochs", r"(.*\n){%d}" % (before + 3), living)
        for worker in (first, last, newcomer):
            worker.send_signal(signal.SIGINT)
        self.assertEqual([job.wait() for job in (server, newcomer)], [130, 130])
        epochs = self.epochs("epochs")
        self.assertEqual([line["epoch"] for line in epochs], list(range(1, len(epochs) + 1)))
        self.assertEqual([line["reported"] for line in (epochs[0], epochs[before + 2])], [3, 3])
        self.assertGreater(epochs[-1]["accuracy"], 0.9)

    def test_a_recipe_that_diverges_is_named_and_the_others_are_compared(self):
        wild = "dense|weight_decay:1e6"  # each step multiplies the weights by thousands
        done = self.train("--ranks", "2", "--compare", "dense", "--compare", wild, "--compare", "topk:50%")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^tulle: --compare " + re.escape(wild) +
                         r": (rank \d: )+the gradient of .* is not finite at index \d+, in step \d+\n$")
        compared = done.stdout.split("\n\n")[-1]
        self.assertRegex(compared, r"(?m)^dense  ")
        self.assertRegex(compared, r"(?m)^topk:50%  ")
        self.assertNotIn(wild, compared)

    def test_what_does_not_go_with_a_parameter_server_is_told(self):
        server = ("--server", "1", "--workers", "2")
        for flags, words in {(*server, "--optimizer", "adamw"): ["--optimizer", "SGD"],
                             (*server, "--ranks", "3"): ["--ranks", "--workers"],
                             (*server, "--recipe", "spardl:1%"): ["--recipe", "does not fit"],
                             (*server, "--backup", "2"): ["--backup", "at least one push"],
                             (*server, "--grace", "1"): ["--grace", "--backup"],
                             (*server, "--patience", "2"): ["--patience"],
                             (*server, "--batch-norm", "average"): ["--batch-norm", "its own"],
                             ("--workers", "2"): ["--workers", "--server 1"],
                             (*server, "--door", "0"): ["--door", "TCP"],
                             (*server, "--join", "a:1", "--compare", "dense", "--compare", "int8"): ["--join", "--compare"],
                             ("--token-weights",): ["--token-weights", "--server 1"],
                             ("--staleness", "1"): ["--staleness", "--server 1"],
                             ("--server", "0"): ["--server"]}.items():
            refused = self.train(*flags)
            self.assertEqual((refused.returncode, refused.stdout), (2, ""), flags)
            for word in words:
                self.assertIn(word, refused.stderr)
        few = self.train("--server", "1", "--workers", "4", launcher=[TULLE, "run", "-n", "3", "--"])
        self.assertEqual(few.returncode, 1)
        self.assertEqual(few.stderr.count("are 5 ranks, and the launcher started 3"), 1)

    def test_a_trace_of_a_run_is_simulated_on_other_networks(self):
        trained = self.train("--ranks", "2", "--steps", "3", "--trace", self.path("trace"))
        self.assertEqual(trained.returncode, 0, trained.stderr)
        head, *parameters = self.epochs("trace")
        self.assertEqual((head["kind"], head["model"], head["batch"]), ("trace", "mlp", 8))
        self.assertGreater(head["forward_seconds"], 0)
        self.assertEqual([line["values"] for line in parameters], [16 * 32, 32, 32 * 10, 10])
        self.assertGreater(sum(line["backward_seconds"] for line in parameters), 0)
        simulated = run("simulate", "--trace", self.path("trace"), "--network", "aries", "--ranks", "16", "--recipe",
                        "topk:10%|dense_below:0")
        self.assertEqual(simulated.returncode, 0, simulated.stderr)
        self.assertIn("recorded on rank 0 of 2", simulated.stdout)

    def test_bad_flags_are_named(self):
        for flags, words in {("--model", "lenet"): ["--model", "mlp"], ("--recipe", "top:1%"): ["--recipe", "topk"],
                             ("--compare", "topk:x"): ["--compare"], ("--rate", "-1"): ["--rate"],
                             ("--overlap", "maybe"): ["--overlap", "on, off"], ("--resume",): ["--resume", "--checkpoint"],
                             ("--hidden", "0"): ["--hidden"], ("--transport", "sim"): ["--transport", "simulation"],
                             ("--momentum", "1"): ["--momentum"], ("--fast",): ["--fast", "--epochs"],
                             ("--sequence", "9"): ["--sequence", "no text"],
                             ("--model", "lstm", "--augment", "on"): ["--augment", "no pictures"],
                             ("--batch-norm", "average"): ["--batch-norm", "mlp has no BatchNorm"],
                             ("--nesterov", "--momentum", "0.9", "--recipe", "redsync:1%"): ["--nesterov", "of its own"],
                             ("--momentum", "0.5", "--recipe", "redsync:1%"): ["--momentum", "of its own", "momentum:0.5"],
                             ("--checkpoint-seconds", "5"): ["--checkpoint-seconds", "needs --checkpoint"],
                             ("--checkpoint-seconds", "5", "--server", "1", "--checkpoint", self.path("run")):
                                 ["--checkpoint-seconds", "--checkpoint-steps"],
                             ("--checkpoint-steps", "5", "--server", "1"): ["--checkpoint-steps", "needs --checkpoint"],
                             ("--no-reproducible", "--server", "1"): ["--no-reproducible", "--server"],
                             ("--no-rate-scaling", "--optimizer", "adamw"): ["--no-rate-scaling", "AdamW"],
                             ("--no-rate-scaling", "--recipe", "local2"): ["--no-rate-scaling", "local steps"],
                             ("--optimizer", "adamw", "--recipe", "redsync:1%"): ["--optimizer", "momentum", "sgd"],
                             ("--checkpoint", "/nowhere/run"): ["--checkpoint"]}.items():
            refused = self.train(*flags)
            self.assertEqual((refused.returncode, refused.stdout), (2, ""), flags)
            for word in words:
                self.assertIn(word, refused.stderr)

    def test_bad_data_is_told_once_with_its_byte(self):
        bad = self.path("bad")
        os.mkdir(bad)
        for name in os.listdir(self.holder.name):
            with open(os.path.join(self.holder.name, name), "rb") as good:
                contents = good.read()
            with open(os.path.join(bad, name), "wb") as file:
                file.write(contents[:-1] if name.startswith("t10k-images") else contents)
        refused = run("train", "nn", "--data", bad, "--ranks", "3")
        self.assertEqual(refused.returncode, 1)
        self.assertEqual(refused.stderr.count("t10k-images-idx3-ubyte: byte 1615: the head announces 1600"), 1)
        missing = run("train", "nn", "--data", "no-such-data")
        self.assertIn("fashion-mnist, mnist, cifar10", missing.stderr)
        for flags, words in {("--model", "resnet20"): "resnet20 takes pictures of 32x32",
                             ("--model", "cnn"): "hidden: cnn has no sizes to choose",
                             ("--dropout", "0.5"): "dropout: mlp has none",
                             ("--test", "other.txt"): "has samples to measure on of its own"}.items():
            unfit = self.train(*flags)
            self.assertEqual(unfit.returncode, 1, flags)
            self.assertIn(words, unfit.stderr)

    def test_pictures_are_not_asked_of_tables(self):
        with open(self.path("rows.tsv"), "w") as file:
            file.writelines(f"{i % 3} {i % 5}\t{i % 2}\n" for i in range(200))
        refused = run("train", "nn", "--data", self.path("rows.tsv"), "--augment", "on", "--ranks", "2")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("rows.tsv has a table of numbers, and no pictures to crop", refused.stderr)

    def test_a_rank_with_another_setting_is_named_on_all_ranks(self):
        others = self.path("others")
        os.mkdir(others)
        for name in os.listdir(self.holder.name):
            with open(os.path.join(self.holder.name, name), "rb") as file:
                contents = file.read()
            with open(os.path.join(others, name), "wb") as file:
                file.write(contents[:-1] + b"\3")  # another pixel, another label
        for flags, words in {("--rate", "0.1"): "rate is 0.02 on ranks 0, 2, is 0.1 on rank 1",
                             ("--model", "cnn"): "model is mlp on ranks 0, 2, is cnn on rank 1",
                             ("--compare", "topk:10%"): "recipe is dense on ranks 0, 2, is topk",
                             ("--server", "1"): "servers is 0 on ranks 0, 2, is 1 on rank 1",
                             ("--data", others): "data is pictures, checksum"}.items():
            usual = {"--data": self.holder.name, "--rate": "0.02", "--batch": "8"}
            odd = usual | {flags[0]: flags[1]}
            usual, odd = (shlex.join([TULLE, "train", "nn", *sum(each.items(), ())]) for each in (usual, odd))
            refused = run("run", "-n", "3", "--", "sh", "-c", f"test $TULLE_RANK = 1 && exec {odd}; exec {usual}")
            self.assertNotEqual(refused.returncode, 0, flags)
            self.assertIn(words, refused.stderr)

    def test_help_lists_models_and_examples(self):
        shown = run("train", "nn", "--help")
        self.assertEqual(shown.returncode, 0)
        for word in "--recipe", "--compare", "resnet110", "topk:16/512", "Examples":
            self.assertIn(word, shown.stdout)

    def test_ctrl_c_saves_and_resume_goes_on(self):
        flags = ("--ranks", "2", "--recipe", "topk:10%|dense_below:0", "--checkpoint", self.path("run"))
        job = subprocess.Popen([TULLE, "train", "nn", "--data", self.holder.name, "--hidden", "32", "--batch", "8",
                                "--epochs", "100000", *flags], stdout=subprocess.PIPE, text=True)
        ends_a_hang = threading.Timer(60, job.kill)
        ends_a_hang.start()
        for line in job.stdout:  # until an epoch is over
            if line.split() and line.split()[0].isdigit():
                break
        job.send_signal(signal.SIGINT)
        rest, _ = job.communicate(timeout=30)
        ends_a_hang.cancel()
        self.assertEqual(job.returncode, 130)
        self.assertIn("--resume goes on from", rest)
        epochs = [line.split()[0] for line in [line, *rest.splitlines()] if line.split() and line.split()[0].isdigit()]
        again = run("train", "nn", "--data", self.holder.name, "--hidden", "32", "--batch", "8", "--epochs",
                    str(int(epochs[-1]) + 1), *flags, "--resume", "--json", self.path("after"))
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("goes on from", again.stdout)
        self.assertEqual([line["epoch"] for line in self.epochs("after")], [int(epochs[-1]) + 1])


if __name__ == "__main__":
    unittest.main()
