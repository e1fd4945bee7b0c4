"""tulle run as its users run it: ranks of any program, and of the command itself over TCP. TULLE is the program."""
import os
import signal
import subprocess
import sys
import time
import unittest

TULLE = os.environ["TULLE"]
ENVIRONMENT = {**os.environ, "TULLE_LAB": "none"}


def run(ranks, *program, **options):
    return subprocess.run([TULLE, "run", "-n", str(ranks), "--", *program], capture_output=True, text=True, timeout=60,
                          env=ENVIRONMENT, **options)


def python(text):
    """A rank's program. It writes a line by one write(), so that lines of ranks do not mix: where Python is unbuffered,
    print() takes two."""
    return sys.executable, "-c", "import os, signal, sys, time\nrank = int(os.environ['TULLE_RANK'])\n" + text


class Run(unittest.TestCase):
    def test_ranks_get_their_numbers_and_one_address(self):
        result = run(3, *python("sys.stdout.write(f\"{rank} {os.environ['TULLE_SIZE']} {os.environ['TULLE_ADDRESS']}\\n\")"))
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = sorted(line.split() for line in result.stdout.splitlines())
        self.assertEqual([line[:2] for line in lines], [["0", "3"], ["1", "3"], ["2", "3"]])
        self.assertEqual(len({line[2] for line in lines}), 1)
        self.assertTrue(lines[0][2].startswith("127.0.0.1:"))

    def test_ranks_get_what_torchrun_sets(self):
        names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TULLE_ADDRESS"]
        result = run(2, *python(f"sys.stdout.write(' '.join(os.environ[name] for name in {names}) + '\\n')"))
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = sorted(line.split() for line in result.stdout.splitlines())
        self.assertEqual([line[:5] for line in lines], [[rank, rank, "2", "2", "127.0.0.1"] for rank in "01"])
        self.assertEqual(lines[0][5:], lines[1][5:])
        self.assertNotEqual(lines[0][6], f"127.0.0.1:{lines[0][5]}")

    def test_each_job_gets_a_name_of_its_own(self):
        names = []
        for _ in range(2):
            result = run(2, *python("sys.stdout.write(os.environ['TULLE_JOB'] + '\\n')"))
            self.assertEqual(result.returncode, 0, result.stderr)
            first, second = result.stdout.splitlines()
            self.assertEqual(first, second)
            names.append(first)
        self.assertNotEqual(*names)

    def test_arguments_and_input_are_the_programs_own(self):
        result = run(2, *python("sys.stdout.write(f'{rank} {sys.argv[1:]} {sys.stdin.read()}\\n')"), "--ranks", "-n", "x y", input="hello")
        self.assertEqual(sorted(result.stdout.splitlines()),
                         ["0 ['--ranks', '-n', 'x y'] hello", "1 ['--ranks', '-n', 'x y'] "])

    def test_the_first_failure_ends_all_and_is_named(self):
        begin = time.monotonic()
        result = run(3, *python("sys.exit(7) if rank == 1 else time.sleep(50)"))
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual(result.returncode, 7)
        self.assertIn("tulle run: rank 1 (", result.stderr)
        self.assertIn("ended with status 7", result.stderr)

    def test_a_rank_that_dies_is_named_with_its_signal(self):
        result = run(2, *python("os.kill(os.getpid(), signal.SIGKILL) if rank == 0 else time.sleep(50)"))
        self.assertEqual(result.returncode, 128 + signal.SIGKILL)
        self.assertIn("rank 0", result.stderr)
        self.assertIn("was ended by signal 9 (Killed)", result.stderr)

    def test_ranks_that_do_not_listen_are_ended_all_the_same(self):
        result = run(2, *python("signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsys.stdout.write('ready\\n')\nsys.stdout.flush()\n"
                                "time.sleep(1)\nsys.exit(3) if rank == 1 else time.sleep(50)"))
        self.assertEqual(result.returncode, 3)

    # A rank that has started a process of its own and one in another session, and says their numbers and its own.
    PARENT = ("import subprocess\n"
              "own = [subprocess.Popen(['sleep', '1000'], start_new_session=apart).pid for apart in (False, True)]\n"
              "sys.stdout.write(' '.join(map(str, [os.getpid(), *own])) + '\\n')\nsys.stdout.flush()\n")

    def start_family(self, text, *flags, ignored=None, handled="signal.SIG_DFL"):
        """A job of two ranks whose program goes on with `text`, and the numbers of the processes below it."""
        begin = f"signal.signal(signal.SIGUSR1, {handled})\n"
        begin += f"signal.signal({int(ignored)}, signal.SIG_IGN)\n" if ignored else ""
        job = subprocess.Popen([TULLE, "run", "-n", "2", *flags, "--", *python(begin + self.PARENT + text)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)
        self.addCleanup(job.stdout.close)
        self.addCleanup(job.stderr.close)
        return job, [int(word) for _ in range(2) for word in job.stdout.readline().split()]

    def assert_gone(self, processes):
        def is_there(process):
            try:
                with open(f"/proc/{process}/stat") as stat:
                    return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
            except OSError:
                return False
        end = time.monotonic() + 30
        while any(map(is_there, processes)) and time.monotonic() < end:
            time.sleep(0.05)
        left = [process for process in processes if is_there(process)]
        for process in left:
            os.kill(process, signal.SIGKILL)
        self.assertEqual(left, [])

    def test_a_rank_that_fails_ends_what_the_ranks_have_started(self):
        job, processes = self.start_family("time.sleep(500)", handled="lambda *_: sys.exit(7) if rank == 1 else None")
        job.send_signal(signal.SIGUSR1)
        self.assertEqual(job.wait(timeout=30), 7)
        self.assertEqual(len(processes), 6)
        self.assert_gone(processes)

    def test_ranks_that_ignore_sigterm_are_killed_with_what_they_have_started(self):
        job, processes = self.start_family("time.sleep(500)", "--grace", "0.5", ignored=signal.SIGTERM)
        job.terminate()
        self.assertEqual(job.wait(timeout=30), 128 + signal.SIGKILL)
        self.assert_gone(processes)

    def test_nothing_outlives_a_tulle_run_that_is_killed(self):
        job, processes = self.start_family("time.sleep(500)", "--grace", "1")
        job.kill()
        job.wait(timeout=30)
        self.assert_gone(processes)

    def test_nothing_outlives_the_half_of_tulle_run_that_leads_the_ranks(self):
        job, processes = self.start_family("time.sleep(500)", "--grace", "1")
        with open(f"/proc/{processes[0]}/stat") as stat:
            leader = int(stat.read().rsplit(")", 1)[1].split()[1])
        self.assertNotEqual(leader, job.pid)
        os.kill(leader, signal.SIGKILL)
        self.assertEqual(job.wait(timeout=30), 128 + signal.SIGKILL)
        self.assert_gone(processes)

    def test_what_a_job_that_ends_well_has_left_running_goes_on(self):
        job, processes = self.start_family("")
        self.assertEqual(job.wait(timeout=30), 0)
        for process in processes[1:3] + processes[4:6]:
            os.kill(process, signal.SIGKILL)  # is there

    def test_a_second_interrupt_insists(self):
        job, processes = self.start_family("time.sleep(500)", "--grace", "0.5", ignored=signal.SIGINT)
        job.send_signal(signal.SIGINT)
        time.sleep(0.5)
        self.assertIsNone(job.poll())
        job.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(timeout=30), 128 + signal.SIGTERM)
        self.assert_gone(processes)

    def test_the_program_begins_with_the_first_word_that_is_no_flag(self):
        for flags in (["-n", "2"], ["-n2", "--grace", "3"], ["--ranks=2"], ["--ranks", "2", "--"]):
            result = subprocess.run([TULLE, "run", *flags, "echo", "--help", "-n", "3"], capture_output=True, text=True,
                                    timeout=20, env=ENVIRONMENT)
            self.assertEqual((result.returncode, result.stdout), (0, "--help -n 3\n" * 2), result.stderr)

    def test_a_bad_number_of_ranks_is_what_the_error_is_about(self):
        for arguments in (["-n", "0", "--"], ["-n", "0", "true"], ["-n", "x", "--", "true"]):
            result = subprocess.run([TULLE, "run", *arguments], capture_output=True, text=True, timeout=20, env=ENVIRONMENT)
            self.assertEqual(result.returncode, 2)
            self.assertIn("--ranks: ", result.stderr)

    def test_signals_reach_the_ranks(self):
        job = subprocess.Popen([TULLE, "run", "-n", "2", "--",
                                *python("signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))\n"
                                        "sys.stdout.write('ready\\n')\nsys.stdout.flush()\ntime.sleep(50)")],
                               stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
        for _ in range(2):
            self.assertEqual(job.stdout.readline(), "ready\n")
        job.send_signal(signal.SIGUSR1)
        self.assertEqual(job.wait(timeout=20), 0)
        job.stdout.close()

    def test_a_program_that_is_not_there_is_told(self):
        result = run(2, "/nonexistent/program")
        self.assertEqual(result.returncode, 127)
        self.assertIn("'/nonexistent/program': No such file or directory", result.stderr)

    def test_what_is_missing_is_told(self):
        for arguments in (["run"], ["run", "-n", "2"], ["run", "-n", "0", "--", "true"], ["run", "--", "true"]):
            result = subprocess.run([TULLE, *arguments], capture_output=True, text=True, timeout=20, env=ENVIRONMENT)
            self.assertEqual(result.returncode, 2, arguments)


class CommandOverTcp(unittest.TestCase):
    def test_bench_finds_its_ranks_by_itself(self):
        for flags in ([], ["--transport", "tcp"]):
            result = run(3, TULLE, "bench", "allreduce", "--dimension", "4K", "--repeats", "2", "--density", "1%", *flags)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            self.assertIn("3 ranks over tcp", result.stdout)
            lines = [line for line in result.stdout.splitlines() if line and line[0] != "#"]
            self.assertGreater(len(lines), 5)
            for line in lines:
                self.assertTrue(line.endswith("OK"), line)

    def test_transport_and_ranks_are_up_to_tulle_run(self):
        for flags in (("--transport", "threads"), ("--ranks", "3")):
            result = run(2, TULLE, "bench", "allreduce", *flags)
            self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
            self.assertIn("tulle run", result.stderr)
            self.assertEqual(result.stderr.count(flags[0] + ":"), 1, result.stderr)

    def test_a_rank_that_has_something_wrong_to_itself_says_so(self):
        for wrong, words in (("TULLE_HEARTBEAT=x", "TULLE_HEARTBEAT"), ("TULLE_PORTS=x", "TULLE_PORTS"),
                             ("TULLE_SIZE=3", "rank 1 says that the job has 3 ranks, rank 0 says 2")):
            script = f'test $TULLE_RANK = 0 || export {wrong}; exec "$0" bench allreduce --dimension 1K --repeats 1'
            result = run(2, "sh", "-c", script, TULLE)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("rank 1: ", result.stderr)
            self.assertIn(words, result.stderr)
        script = 'test $TULLE_RANK = 0 || set -- --no-such-flag; exec "$0" bench allreduce --dimension 1K "$@"'
        result = run(2, "sh", "-c", script, TULLE)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("--no-such-flag", result.stderr)

    def test_tcp_without_ranks_says_how_to_get_some(self):
        result = subprocess.run([TULLE, "bench", "allreduce", "--transport", "tcp"], capture_output=True, text=True,
                                timeout=20, env=ENVIRONMENT)
        self.assertEqual(result.returncode, 2)
        self.assertIn("tulle run -n 4", result.stderr)


if __name__ == "__main__":
    unittest.main()
