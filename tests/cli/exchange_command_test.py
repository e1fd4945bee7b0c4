"""tulle bench exchange as its users run it. TULLE is the program."""
import json
import os
import subprocess
import tempfile
import unittest

TULLE = os.environ["TULLE"]
ENVIRONMENT = {**os.environ, "TULLE_LAB": "none"}


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=ENVIRONMENT)


class Exchange(unittest.TestCase):
    def test_simulated_ranks_need_what_the_wires_need(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "rows.jsonl")
            result = run(TULLE, "bench", "exchange", "--transport", "sim", "--ranks", "5", "--bytes", "1K", "1M", "--json", path)
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(path) as file:
                rows = [json.loads(line) for line in file]
        self.assertEqual([(row["bytes"], row["ranks"], row["verified"]) for row in rows], [(1024, 5, True), (1048576, 5, True)])
        for row in rows:
            self.assertGreaterEqual(row["seconds_median"], row["limit_seconds"])
        self.assertLess(rows[1]["seconds_median"], 1.2 * rows[1]["limit_seconds"])

    def test_pairs_exchange_over_tcp_and_one_of_three_sits_out(self):
        result = run(TULLE, "run", "-n", "3", "--", TULLE, "bench", "exchange", "--pattern", "pairs", "--bytes", "300K", "--repeats", "3")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("pairs, 3 ranks over tcp", result.stdout)
        self.assertIn("OK", result.stdout)

    def test_what_makes_no_sense_is_refused(self):
        for flags, words in ((("--bytes", "0"), "at least 1 byte"), (("--pattern", "ring"), "none of all_to_all, pairs")):
            result = run(TULLE, "bench", "exchange", *flags)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(words, result.stderr)


if __name__ == "__main__":
    unittest.main()
