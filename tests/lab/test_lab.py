"""Tests of the network lab: /usr/bin/python3 tests/lab/test_lab.py. They use only namespaces that they make."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
LAB = os.path.join(ROOT, "lab", "lab")
sys.path.insert(0, os.path.dirname(LAB))

from tulle_lab.plan import make_plan, place_ranks  # noqa: E402
from tulle_lab.units import format_rate, parse_rate, parse_size  # noqa: E402

NOBODY = 65534

HELLO = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size, length, sum = 0;
  char host[MPI_MAX_PROCESSOR_NAME];
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Get_processor_name(host, &length);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  printf("rank %d of %d on %s sum %d via %s\n", rank, size, host, sum, getenv("TULLE_LAB_INTERFACE"));
  if (rank == 0) printf("network %s\n", getenv("TULLE_LAB"));
  MPI_Finalize();
}
"""

TRANSFER = r"""
import os, socket, time
interface = os.environ["TULLE_LAB_INTERFACE"]
def sent():
    return int(open(f"/sys/class/net/{interface}/statistics/tx_bytes").read())
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    with socket.create_server(address) as server:
        peer, _ = server.accept()
        left = 3000000
        while left:
            left -= len(peer.recv(left))
        peer.sendall(b"k")
else:
    for _ in range(100):
        try:
            peer = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    before = sent()
    peer.sendall(bytes(3000000))
    peer.recv(1)
    print("own counter", sent() - before)
"""


def namespaces():
    """Return the names of all network namespaces."""
    return set(os.listdir("/run/netns")) if os.path.isdir("/run/netns") else set()


def wait_until(condition, seconds=10.0):
    """Wait for `condition` and return whether it came."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def process_exists(pid):
    """Return whether the process runs (a zombie does not)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class LabTest(unittest.TestCase):
    """Gives each test its own record of labs and names, and removes whatever it left."""

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="tulle-lab-test-")
        os.chmod(self.directory, 0o755)
        self.environment = {**os.environ, "TULLE_LAB_STATE": os.path.join(self.directory, "state")}
        self.name = f"t{os.getpid()}"
        self.before = namespaces()
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.addCleanup(self.remove_labs)

    def remove_labs(self):
        """Remove the labs of this test, whoever owns them."""
        for lab in json.loads(self.lab("status", "--json").stdout or "[]"):
            self.lab("down", "--name", lab["name"])

    def lab(self, *arguments, **options):
        """Run the lab to its end."""
        return subprocess.run([LAB, *arguments], env=self.environment, capture_output=True, text=True, timeout=45,
                              check=False, **options)

    def write(self, name, text):
        """Write a file for the test and return its path."""
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path


@unittest.skipIf(os.geteuid() != 0, "needs root: namespaces cannot be made otherwise")
class RootTest(LabTest):
    """A test that makes labs."""

    def up(self, *arguments, name=None, hosts=2, rate="100mbit"):
        """Make a lab that must succeed."""
        done = self.lab("up", "--name", name or self.name, "--hosts", str(hosts), "--rate", rate, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def run_in(self, *arguments):
        """Run in the lab something that must succeed."""
        done = self.lab("run", "--name", self.name, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def made(self):
        """Return the namespaces that were not there before the test."""
        return namespaces() - self.before


class LifeTest(RootTest):
    def test_up_then_down_leaves_nothing(self):
        links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
        self.up(hosts=3)
        self.assertEqual(len(self.made()), 4)
        self.assertEqual(subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout, links)
        self.assertTrue(os.path.exists(f"/etc/netns/tulle-{self.name}-0/hosts"))
        done = self.lab("down", "--name", self.name)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertEqual(self.made(), set())
        self.assertFalse(os.path.exists(f"/etc/netns/tulle-{self.name}-0"))
        self.assertEqual(self.lab("status").stdout, "no lab exists\n")

    def test_two_labs_live_side_by_side(self):
        first, second = self.name + "a", self.name + "b"
        self.up(name=first)
        self.up(name=second)
        networks = {lab["network"] for lab in json.loads(self.lab("status", "--json").stdout)}
        self.assertEqual(len(networks), 2)
        ambiguous = self.lab("run", "--each", "--", "true")
        self.assertEqual(ambiguous.returncode, 2)
        self.assertIn("--name", ambiguous.stderr)
        self.lab("down", "--name", first)
        self.assertEqual(self.lab("run", "--name", second, "--each", "--", "true").returncode, 0)

    def test_down_ends_what_runs_in_the_lab(self):
        self.up()
        sleeper = subprocess.Popen(["ip", "netns", "exec", f"tulle-{self.name}-0", "sleep", "100"])
        self.addCleanup(sleeper.kill)
        self.assertTrue(wait_until(lambda: subprocess.run(
            ["ip", "netns", "pids", f"tulle-{self.name}-0"], capture_output=True, text=True, check=False).stdout))
        self.lab("down")
        self.assertIsNotNone(sleeper.wait(5))

    def test_a_namespace_of_another_is_left_alone(self):
        foreign = f"tulle-{self.name}-1"
        subprocess.run(["ip", "netns", "add", foreign], check=True)
        self.addCleanup(subprocess.run, ["ip", "netns", "delete", foreign], check=False)
        done = self.lab("up", "--name", self.name, "--hosts", "2", "--rate", "1gbit")
        self.assertEqual(done.returncode, 125)
        self.assertIn(foreign, done.stderr)
        self.lab("down", "--all")
        self.assertEqual(self.made(), {foreign})

    def test_a_namespace_made_anew_by_another_is_left_alone(self):
        self.up()
        replaced = f"tulle-{self.name}-1"
        subprocess.run(["ip", "netns", "delete", replaced], check=True)
        subprocess.run(["ip", "netns", "add", replaced], check=True)
        self.addCleanup(subprocess.run, ["ip", "netns", "delete", replaced], check=False)
        self.assertEqual(self.lab("down").returncode, 0)
        self.assertEqual(self.made(), {replaced})

    def test_a_name_in_use_is_refused(self):
        self.up()
        again = self.lab("up", "--name", self.name, "--hosts", "2", "--rate", "1gbit")
        self.assertEqual(again.returncode, 2)
        self.assertIn("exists", again.stderr)


class WithTest(RootTest):
    def start(self, *command):
        """Start `lab with`, wait until the command has written its process ids, and return both."""
        pids = os.path.join(self.directory, "pids")
        script = f'echo $$ >> {pids}; {" ".join(command)}'
        child = subprocess.Popen([LAB, "with", "--hosts", "2", "--rate", "100mbit", "--each", "--", "sh", "-c", script],
                                 env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(child.kill)

        def written():
            if not os.path.exists(pids):
                return []
            with open(pids, encoding="utf-8") as file:
                return [int(line) for line in file]

        self.assertTrue(wait_until(lambda: len(written()) == 2))
        self.assertEqual(len(self.made()), 3)
        return child, written()

    def assert_gone(self, pids):
        """Check that no namespace and no process remains."""
        self.assertTrue(wait_until(lambda: not self.made()), self.made())
        self.assertTrue(wait_until(lambda: not any(map(process_exists, pids))))
        self.assertEqual(self.lab("status").stdout, "no lab exists\n")

    def test_the_exit_code_is_the_commands(self):
        done = self.lab("with", "--hosts", "2", "--rate", "1gbit", "--each", "--", "sh", "-c", "exit 7")
        self.assertEqual(done.returncode, 7)
        self.assert_gone([])

    def test_sigterm_cleans_up(self):
        child, pids = self.start("sleep 100")
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(10), 128 + signal.SIGTERM)
        self.assert_gone(pids)

    def test_ctrl_c_twice_cleans_up(self):
        child, pids = self.start("sleep 100")
        child.send_signal(signal.SIGINT)
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.wait(10), 128 + signal.SIGINT)
        self.assert_gone(pids)

    def test_a_command_that_ignores_sigterm_ends_all_the_same(self):
        child, pids = self.start("trap '' TERM; while :; do sleep 0.1; done")
        child.send_signal(signal.SIGTERM)
        child.wait(15)
        self.assert_gone(pids)

    def test_a_killed_command_cleans_up(self):
        child, pids = self.start("sleep 100")
        os.kill(pids[1], signal.SIGKILL)
        self.assertEqual(child.wait(10), 128 + signal.SIGKILL)
        self.assert_gone(pids)

    def test_a_killed_lab_cleans_up(self):
        child, pids = self.start("sleep 100")
        child.kill()
        child.wait()
        self.assert_gone(pids)

    def test_a_stale_lab_is_noticed_and_removed(self):
        self.up()
        path = os.path.join(self.environment["TULLE_LAB_STATE"], f"{self.name}.json")
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
        record["owner"] = {"pid": 1, "started": "never"}
        self.write(path, json.dumps(record))
        self.assertIn("stale", self.lab("status").stdout)
        self.assertIn("stale", self.lab("run", "--each", "--", "true").stderr)
        self.assertEqual(self.lab("down", "--all").returncode, 0)
        self.assertEqual(self.made(), set())

    def test_down_all_leaves_a_lab_in_use(self):
        child, pids = self.start("sleep 100")
        self.assertIn(str(child.pid), self.lab("down", "--all").stderr)
        self.assertEqual(len(self.made()), 3)
        child.terminate()
        child.wait(10)
        self.assert_gone(pids)


class NetworkTest(RootTest):
    def test_links_are_shaped_also_for_short_messages(self):
        done = self.up("--check", rate="50mbit")
        self.assertIn("check host 0 to 1 at 50mbit", done.stderr)

    def test_a_large_burst_is_told(self):
        done = self.lab("up", "--name", self.name, "--hosts", "2", "--rate", "50mbit", "--burst", "128kB", "--check")
        self.assertEqual(done.returncode, 125)
        self.assertIn("burst is too large", done.stderr)
        self.assertEqual(self.made(), set())

    def test_one_host_can_be_slow_and_links_asymmetric(self):
        self.lab("up", "--name", self.name, "--hosts", "3", "--up-rate", "40mbit", "--down-rate", "80mbit",
                 "--rate-of", "2=20mbit/10mbit")
        done = self.lab("check", "--name", self.name)
        self.assertEqual(done.returncode, 0, done.stderr)
        for line in ("0 to 1 at 40mbit", "0 to 2 at 10mbit", "2 to 0 at 20mbit"):
            self.assertIn(line, done.stderr)

    def test_counters_match_a_known_transfer(self):
        self.up(rate="1gbit")
        record = os.path.join(self.directory, "counters.jsonl")
        done = self.run_in("--torch", "--counters", record, "--", self.write("transfer.py", TRANSFER))
        with open(record, encoding="utf-8") as file:
            hosts = json.loads(file.readline())["hosts"]
        wire = make_plan("x", 0, 2, 10**9, 10**9, {}, 1500, 0, 0).wire_bytes(3000000)
        for counted in (hosts[1]["sent_bytes"], hosts[0]["received_bytes"]):
            self.assertLess(abs(counted / wire - 1), 0.01)
        self.assertLess(hosts[0]["sent_bytes"], 0.1 * wire)
        own = int(done.stdout.split("own counter")[1])
        self.assertLess(abs(own / 3000000 - 1), 0.06)
        self.assertIn("sent bytes", done.stderr)


class LaunchTest(RootTest):
    def build(self, kind):
        """Build the hello program with one MPI, or skip."""
        compiler = shutil.which(f"mpicc.{kind}")
        if not compiler or not shutil.which(f"mpirun.{kind}"):
            self.skipTest(f"{kind} is not installed")
        source, binary = self.write("hello.c", HELLO), os.path.join(self.directory, f"hello.{kind}")
        subprocess.run([compiler, source, "-o", binary], check=True)
        return binary

    def check_hello(self, kind):
        """Run hello with one rank per host, then with more ranks than hosts."""
        binary = self.build(kind)
        self.up(hosts=4, rate="1gbit")
        done = self.run_in("--mpi", kind, "--timeout", "20", "--", binary)
        for rank in range(4):
            self.assertIn(f"rank {rank} of 4 on tulle-{self.name}-{rank} sum 6 via eth0\n", done.stdout)
        network = json.loads(done.stdout.split("network ")[1].splitlines()[0])
        self.assertEqual((network["hosts"], network["rate"]), (4, "1gbit"))
        more = self.run_in("--mpi", kind, "--timeout", "20", "--np", "6", "--", binary)
        for rank, host in enumerate((0, 0, 1, 1, 2, 3)):
            self.assertIn(f"rank {rank} of 6 on tulle-{self.name}-{host} sum 15", more.stdout)

    def test_openmpi_says_hello_across_hosts(self):
        self.check_hello("openmpi")

    def test_mpich_says_hello_across_hosts(self):
        self.check_hello("mpich")

    def test_a_binary_of_the_other_mpi_is_refused(self):
        binary = self.build("mpich")
        self.up()
        done = self.lab("run", "--mpi", "openmpi", "--", binary)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--mpi mpich", done.stderr)

    def test_a_launch_that_hangs_is_tried_again(self):
        self.build("openmpi")
        self.up()
        done = self.lab("run", "--launch-timeout", "0.01", "--retries", "1", "--", "sleep", "5")
        self.assertEqual(done.returncode, 125)
        self.assertIn("trying again (1 left)", done.stderr)
        self.assertIn("giving up", done.stderr)

    def test_a_command_that_takes_too_long_is_ended(self):
        self.up()
        begun = time.monotonic()
        done = self.lab("run", "--timeout", "0.5", "--each", "--", "sleep", "30")
        self.assertEqual(done.returncode, 124)
        self.assertLess(time.monotonic() - begun, 8)

    def test_torch_scripts_get_their_variables(self):
        self.up(hosts=3)
        script = self.write("show.py", "import os\nprint(*(os.environ[n] for n in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK',"
                                       " 'MASTER_ADDR', 'GLOO_SOCKET_IFNAME')), os.uname().nodename)\n")
        done = self.run_in("--torch", "--", script)
        lines = [f"[{rank}] {rank} 3 0 10.77.0.1 eth0 tulle-{self.name}-{rank}" for rank in range(3)]
        self.assertEqual(sorted(done.stdout.splitlines()), lines)

    def test_a_command_outside_reaches_the_hosts_and_leaves_nothing_there(self):
        self.up()
        script = self.write("outside.sh", "name=$(echo $TULLE_LAB | sed 's/.*\"name\":\"\\([^\"]*\\)\".*/\\1/')\n"
                                          "ip netns exec tulle-$name-1 hostname -I\n"
                                          "ip netns exec tulle-$name-1 sleep 100 &\necho pid $!\nexit 6\n")
        done = self.lab("run", "--outside", "--", "sh", script)
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertIn("10.77.0.2", done.stdout)
        pid = int(done.stdout.split("pid ")[1])
        self.assertTrue(wait_until(lambda: not process_exists(pid)))

    def test_one_failure_ends_all(self):
        self.up()
        script = self.write("fail.py", "import os, time\nif os.environ['RANK'] == '1': raise SystemExit(5)\n"
                                       "time.sleep(60)\n")
        done = self.lab("run", "--torch", "--", script)
        self.assertEqual(done.returncode, 5)


class UsageTest(LabTest):
    def assert_refused(self, arguments, *words):
        """Check that the arguments are refused with code 2 and a message with these words."""
        done = self.lab(*arguments)
        self.assertEqual(done.returncode, 2, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_bad_flags_are_named_with_what_is_allowed(self):
        self.assert_refused(["up", "--rate", "fast"], "--rate", "gbit")
        self.assert_refused(["up", "--rate", "1gbit", "--hosts", "0"], "--hosts", "1 to 250")
        self.assert_refused(["up", "--rate", "1gbit", "--name", "A b"], "--name", "a-z")
        self.assert_refused(["up", "--rate", "1gbit", "--rate-of", "x"], "--rate-of", "HOST=RATE")
        self.assert_refused(["run", "--mpi", "lam", "--", "true"], "--mpi", "openmpi", "mpich")
        self.assert_refused(["run", "--timeout", "-1", "--", "true"], "--timeout", "above 0")
        self.assert_refused(["run"], "--")
        self.assert_refused(["status", "--", "true"], "takes no command")
        self.assert_refused(["sideways"], "sideways")

    @unittest.skipIf(os.geteuid() != 0, "needs root: others are told about rights first")
    def test_flags_that_do_not_fit_together_are_named(self):
        self.assert_refused(["up"], "--rate")
        self.assert_refused(["up", "--rate", "1gbit", "--hosts", "2", "--rate-of", "2=1mbit"], "--rate-of", "0 to 1")
        self.assert_refused(["up", "--rate", "1gbit", "--burst", "100"], "--burst", "1514")
        self.assert_refused(["run", "--name", "nowhere", "--", "true"], "--name", "nowhere")

    def test_help_shows_examples(self):
        done = self.lab("--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("lab with --hosts 8", done.stdout)

    def test_without_rights_it_says_what_to_run_instead(self):
        who = {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}
        done = self.lab("with", "--hosts", "4", "--rate", "1gbit", "--", "./program", "two words", **who)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("root", done.stderr)
        self.assertIn("mpirun --oversubscribe -np 4 ./program 'two words'", done.stderr)


class PlanTest(unittest.TestCase):
    def test_rates_and_sizes_read_as_written(self):
        self.assertEqual(parse_rate("2.5gbit"), 2_500_000_000)
        self.assertEqual(format_rate(parse_rate("100mbit")), "100mbit")
        self.assertEqual(parse_size("16kB"), 16384)
        for wrong in ("", "1", "1gb", "-1gbit", "1gbit/s", "1kbit", "1000gbit"):
            with self.assertRaises(ValueError):
                parse_rate(wrong)

    def test_ranks_are_placed_in_blocks_that_differ_by_one_at_most(self):
        self.assertEqual(place_ranks(2, "abc"), list("ab"))
        self.assertEqual(place_ranks(5, "abc"), list("aabbc"))
        self.assertEqual(place_ranks(6, "abc"), list("aabbcc"))

    def test_the_bucket_follows_the_rate_and_holds_two_packets(self):
        lab = make_plan("x", 0, 2, 10**9, 10**7, {}, 1500, 0, 0)
        self.assertEqual(lab.bucket_bytes(10**9), 24000)
        self.assertEqual(lab.bucket_bytes(10**7), 2 * 1514)
        self.assertEqual(lab.train_packets(10**9), 13)


if __name__ == "__main__":
    unittest.main()
