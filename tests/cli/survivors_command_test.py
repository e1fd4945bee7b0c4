#!/usr/bin/python3
"""A rank of `tulle bench allreduce --deadline` is killed or stopped at a random moment; the others end soon and say why.

TULLE is the command and TULLE_KEEPING_MPIRUN what starts four ranks of which one may die without the launcher ending
the others. TULLE_SURVIVORS_SEED repeats a failure, which prints it; TULLE_SURVIVORS_TRIALS asks for more of them.
"""

import os
import random
import signal
import subprocess
import tempfile
import time
import unittest

RANKS = 4
DEADLINE_SECONDS = 2
# After the deadline a survivor tells the others, gives them time to speak, and leaves; the machine may be busy. MPI itself
# gets 30 seconds to start, and half of the victims do not live to see it.
PATIENCE_SECONDS = {"starting": 30 + 13, "measuring": DEADLINE_SECONDS + 13}
TRIALS = int(os.environ.get("TULLE_SURVIVORS_TRIALS", "6"))
SEED = int(os.environ.get("TULLE_SURVIVORS_SEED", random.SystemRandom().randrange(2**32)))

# Each rank's words go to a file of its own, which outlives the launcher; so does its exit code, written in one step.
RANK = r"""
trap : USR1
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
"$@" >"$SURVIVORS/out.$rank" 2>"$SURVIVORS/err.$rank" &
echo $! >"$SURVIVORS/pid.new.$rank" && mv "$SURVIVORS/pid.new.$rank" "$SURVIVORS/pid.$rank"
wait $!
echo $? >"$SURVIVORS/code.new.$rank" && mv "$SURVIVORS/code.new.$rank" "$SURVIVORS/code.$rank"
"""


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().strip()


def wait_for(paths, seconds):
    """The paths that are still missing then."""
    end = time.monotonic() + seconds
    while missing := [path for path in paths if not os.path.exists(path)]:
        if time.monotonic() > end:
            return missing
        time.sleep(0.02)
    return []


class Job:
    """Ranks that measure for as long as they live."""

    def __init__(self, directory):
        self.directory = directory
        command = [os.environ["TULLE"], "bench", "allreduce", "--dimension", "2^16", "--density", "0.01",
                   "--algorithm", "auto,ssar_split_allgather,dense_ring", "--repeats", "1000000",
                   "--deadline", str(DEADLINE_SECONDS)]
        self.launcher = subprocess.Popen([*os.environ["TULLE_KEEPING_MPIRUN"].split(), "sh", "-c", RANK, "rank", *command],
                                         env={**os.environ, "SURVIVORS": directory}, start_new_session=True,
                                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def path(self, what, rank):
        return os.path.join(self.directory, f"{what}.{rank}")

    def processes(self):
        missing = wait_for([self.path("pid", rank) for rank in range(RANKS)], 60)
        assert not missing, f"ranks have not started: {missing}"
        return [int(read(self.path("pid", rank))) for rank in range(RANKS)]

    def wait_until_it_measures(self):
        """The leader prints what it measures when all ranks have met."""
        end = time.monotonic() + 60
        while not (os.path.exists(self.path("out", 0)) and read(self.path("out", 0))):
            assert time.monotonic() < end, "nothing is measured"
            time.sleep(0.02)

    def end(self, processes):
        for process in processes:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            self.launcher.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(self.launcher.pid, signal.SIGKILL)
            self.launcher.communicate()


@unittest.skipUnless(os.environ.get("TULLE_KEEPING_MPIRUN"), "no MPI whose survivors may live")
class Survivors(unittest.TestCase):
    def test_every_survivor_ends_near_the_deadline_and_says_why(self):
        chance = random.Random(SEED)
        for trial in range(TRIALS):
            fate = (signal.SIGKILL, signal.SIGSTOP)[trial % 2]
            when = "starting" if trial % 3 == 2 else "measuring"
            victim, delay = chance.randrange(RANKS), chance.uniform(0, 1.5)
            with self.subTest(seed=SEED, trial=trial, fate=fate.name, when=when, victim=victim, delay=delay):
                self.try_once(fate, when, victim, delay)

    def try_once(self, fate, when, victim, delay):
        with tempfile.TemporaryDirectory() as directory:
            job = Job(directory)
            processes = job.processes()
            try:
                if when == "measuring":
                    job.wait_until_it_measures()
                time.sleep(delay)
                os.kill(processes[victim], fate)
                survivors = [rank for rank in range(RANKS) if rank != victim]
                missing = wait_for([job.path("code", rank) for rank in survivors], PATIENCE_SECONDS[when])
                self.assertEqual(missing, [], "ranks that go on")
                for rank in survivors:
                    self.assertNotEqual(read(job.path("code", rank)), "0", f"rank {rank}")
                    # MPI may have words of its own for a job that does not start.
                    words = r"\w" if when == "starting" else rf"tulle: rank {rank}\b.*\w"
                    self.assertRegex(read(job.path("err", rank)), words)
            finally:
                job.end(processes)


if __name__ == "__main__":
    unittest.main()
