"""tulle watch in a terminal, in a pipe and on a growing file. TULLE is the program."""
import json
import os
import pty
import re
import select
import signal
import subprocess
import tempfile
import termios
import time
import unittest

TULLE = os.environ["TULLE"]
WAIT_SECONDS = 10


def stats(step, **fields):
    return json.dumps({"kind": "stats", "step": step, "seconds": 0.25, "bytes_sent": 1e6, "density": 0.01,
                       "rank_seconds": [0.1, 0.1, 0.3, 0.1], **fields}) + "\n"


class WatchCase(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = os.path.join(directory.name, "stats.jsonl")

    def append(self, text):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(text)


class InAPipe(WatchCase):
    def watch(self, text, *flags):
        return subprocess.run([TULLE, "watch", *flags], input=text, capture_output=True, text=True,
                              timeout=WAIT_SECONDS)

    def follow(self):
        """A watch of the file, which goes on until it is killed."""
        child = subprocess.Popen([TULLE, "watch", self.path, "--interval", "0.05"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        return child

    def test_one_plain_line_says_all(self):
        shown = self.watch("".join(stats(step, loss=1 / step) for step in (1, 2, 4)), "--once")
        self.assertEqual(shown.stdout, "step 4  4 steps/s  4 MB/s  density 1 %  loss 0.25  "
                                       "slowest rank 2, 3.00 times the median\n")
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))

    def test_rows_of_other_commands_are_understood(self):
        rows = os.path.join(os.path.dirname(self.path), "rows.jsonl")
        subprocess.run([TULLE, "bench", "allreduce", "--transport", "sim", "--dimension", "4K", "--density", "0.02",
                        "--json", rows], check=True, stdout=subprocess.DEVNULL, timeout=WAIT_SECONDS)
        shown = self.watch("", rows, "--once").stdout
        self.assertRegex(shown, r"^step \d+  .*steps/s  .*B/s  density 2 %\n$")

    def test_epochs_of_training_count_from_the_beginning(self):
        epochs = "".join(json.dumps({"kind": "train_linear", "epoch": epoch, "seconds": 2 * epoch,
                                     "bytes_sent": 1000 * epoch, "objective": 1 / epoch}) + "\n"
                         for epoch in (1, 2, 3, 4))
        self.assertEqual(self.watch(epochs, "--once").stdout, "epoch 4  0.5 epochs/s  500 B/s  loss 0.25\n")

    def test_epochs_of_networks_count_their_steps_and_begin_anew_with_another_recipe(self):
        def epoch(recipe, number, seconds, megabytes):
            return json.dumps({"kind": "train_nn", "recipe": recipe, "epoch": number, "steps": 30 * number, "loss": 0.5,
                               "accuracy": 0.25 * number, "seconds": seconds, "exposed_seconds": seconds / 2,
                               "bytes_sent": megabytes * 1e6}) + "\n"

        one = epoch("topk:1%", 1, 10, 1) + epoch("topk:1%", 2, 20, 2)
        self.assertEqual(self.watch(one, "--once").stdout,
                         "epoch 2  3 steps/s  100 kB/s  exposed 5 s  loss 0.5  accuracy 0.5000\n")
        # A job that went on from a checkpoint writes the epoch again.
        self.assertEqual(self.watch(one + epoch("topk:1%", 2, 21, 2.1), "--once").stdout,
                         "epoch 2  2.86 steps/s  100 kB/s  exposed 500 ms  loss 0.5  accuracy 0.5000\n")
        # The second run takes longer and sends more than the first: no total falls.
        for second in ("dense", "topk:1%"):
            self.assertEqual(self.watch(epoch("topk:1%", 1, 10, 1) + epoch(second, 1, 20, 2), "--once").stdout,
                             "epoch 1  2 steps/s  100 kB/s  exposed 10 s  loss 0.5  accuracy 0.2500\n")

    def test_what_is_no_stats_line_is_skipped_and_counted(self):
        shown = self.watch("hello\n[1]\n{}\n" + stats(3))
        self.assertIn("step 3", shown.stdout)
        self.assertIn("3 line(s)", shown.stderr)

    def test_a_growing_file_gives_a_line_only_when_something_came(self):
        self.append(stats(1))
        child = self.follow()
        self.assertIn("step 1 ", child.stdout.readline())
        text = stats(2)
        self.append(text[:20])
        time.sleep(0.3)
        self.append(text[20:])
        self.assertIn("step 2 ", child.stdout.readline())
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.communicate(timeout=WAIT_SECONDS)[0], "")
        self.assertEqual(child.returncode, 0)

    def test_a_file_that_became_shorter_is_read_anew(self):
        self.append(stats(100) * 3)
        child = self.follow()
        self.assertIn("step 100 ", child.stdout.readline())
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(stats(5))
        self.assertIn("step 5 ", child.stdout.readline())

    def test_a_missing_file_is_told(self):
        self.assertEqual(self.watch("", "/nonexistent").returncode, 2)


class InATerminal(WatchCase):
    def start(self, columns, **environment):
        """Starts a watch in a terminal of its own."""
        master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (24, columns))
        self.child = subprocess.Popen([TULLE, "watch", self.path, "--interval", "0.05"], stdin=slave, stdout=slave,
                                      stderr=slave, env={"TERM": "xterm", **environment})
        os.close(slave)
        self.master, self.seen = master, ""
        self.addCleanup(os.close, master)
        self.addCleanup(self.child.wait)
        self.addCleanup(self.child.kill)

    def read_until(self, pattern):
        until = time.monotonic() + WAIT_SECONDS
        while not re.search(pattern, self.seen):
            self.assertLess(time.monotonic(), until, f"{pattern!r} is not in {self.seen!r}")
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 65536).decode()

    def test_frames_are_drawn_over_each_other(self):
        self.append("".join(stats(step, seconds=0.1 * step) for step in range(1, 9)))
        self.start(100, LANG="C.UTF-8")
        self.read_until(r"step +8")
        self.read_until("▁.*█")
        self.append(stats(9))
        self.read_until(r"step +9")
        self.assertIn("\033[?25l", self.seen)
        self.assertRegex(self.seen, r"\033\[6A")
        self.assertIn("\033[33m", self.seen)  # a slow rank stands out
        self.child.send_signal(signal.SIGINT)
        self.read_until(r"\033\[\?25h")
        self.assertEqual(self.child.wait(WAIT_SECONDS), 0)

    def test_no_line_is_wider_than_the_terminal(self):
        self.append("".join(stats(step) for step in range(200)))
        for columns in (20, 60):
            self.start(columns, NO_COLOR="1")
            self.read_until(r"slow ra")
            text = re.sub(r"\033\[[?0-9]*[a-zA-Z]", "", self.seen)
            self.assertTrue(all(len(line.strip("\r")) <= columns for line in text.split("\n")), text)
            self.assertNotIn("\033[3", self.seen)
            self.assertTrue(text.isascii(), text)

    def test_a_terminal_that_cannot_draw_gets_plain_lines(self):
        self.append(stats(1))
        self.start(80, TERM="dumb")
        self.read_until(r"step 1  4 steps/s")
        self.assertNotIn("\033", self.seen)


if __name__ == "__main__":
    unittest.main()
