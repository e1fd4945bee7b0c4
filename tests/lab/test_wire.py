"""What tulle says it sends, held against what the links of a lab counted. TULLE is the program; needs root."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
LAB = os.path.join(ROOT, "lab", "lab")
TULLE = os.environ.get("TULLE", "")
HOSTS, REPEATS, WARMUP = 4, 4, 1
TOLERANCE = 0.1  # Ethernet, IP and TCP add 66 bytes to 1448: 4.6 %; MPI's own messages and acknowledgements the rest


def lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@unittest.skipUnless(os.geteuid() == 0, "needs root")
@unittest.skipUnless(shutil.which("ip") and shutil.which("mpirun.openmpi"), "needs iproute2 and Open MPI")
@unittest.skipUnless(os.path.exists(TULLE), "needs TULLE")
class Wire(unittest.TestCase):
    def compare(self, *flags):
        """The rows of a comparison, and the bytes that all links carried from its launch to its end."""
        with tempfile.TemporaryDirectory() as directory:
            rows, counted = (os.path.join(directory, name) for name in ("rows.jsonl", "counters.jsonl"))
            done = subprocess.run(
                [LAB, "with", "--hosts", str(HOSTS), "--rate", "1gbit", "--quiet", "--timeout", "60", "--counters",
                 counted, "--", TULLE, "bench", "allreduce", "--dimension", "2^20", "--repeats", str(REPEATS),
                 "--warmup", str(WARMUP), "--json", rows, *flags], capture_output=True, text=True, timeout=100)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return lines(rows), sum(host["sent_bytes"] for host in lines(counted)[0]["hosts"])

    def assert_close(self, wire, reported, what):
        self.assertGreaterEqual(wire, reported, what)
        self.assertLessEqual(wire, (1 + TOLERANCE) * reported, what)

    def test_each_row_says_what_its_hosts_sent(self):
        rows, _ = self.compare("--density", "0.001", "0.1", "--algorithm", "ssar_split_allgather,dense_ring,mpi_native")
        self.assertEqual(len(rows), 6)
        for row in rows:
            self.assertLessEqual(row["wire_bytes_sent_max"], row["wire_bytes_sent_total"])
            if row["algorithm"] == "mpi_native":  # whose own count is not known
                self.assertGreater(row["wire_bytes_sent_total"], 4 * row["dimension"])
            else:
                self.assert_close(row["wire_bytes_sent_total"], row["bytes_sent_total"], row)

    def test_the_shapers_of_all_links_agree(self):
        [row], counted = self.compare("--density", "0.1", "--algorithm", "dense_ring")
        self.assert_close(counted, (WARMUP + REPEATS) * row["bytes_sent_total"], row)


if __name__ == "__main__":
    unittest.main()
