"""tulle simulate as its users run it. TULLE is the program."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

TULLE = os.environ["TULLE"]


def simulate(*arguments):
    return subprocess.run([TULLE, "simulate", "--dimension", "16K", *arguments], capture_output=True, text=True,
                          timeout=100)


def rows_of(result):
    return [line.split() for line in result.stdout.splitlines() if line and line[0] != "#"]


def seconds_of(result):
    return {(row[0], row[1], row[3]): float(row[4]) for row in rows_of(result)}


class Simulate(unittest.TestCase):
    def expect_success(self, *arguments):
        result = simulate(*arguments)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result

    def test_lists_of_ranks_and_densities_give_a_row_for_each_algorithm(self):
        result = self.expect_success("--ranks", "2,5", "--density", "1%", "10%", "--algorithm", "auto,dense_ring")
        self.assertEqual([(row[0], row[1], row[3].split("=")[0]) for row in rows_of(result)],
                         [(ranks, density, name) for ranks in ("2", "5") for density in ("0.01", "0.1")
                          for name in ("auto", "dense_ring")])
        self.assertTrue(all(row[-2:] == ["real", "OK"] for row in rows_of(result)))

    def test_the_same_command_gives_the_same_lines(self):
        arguments = ["--ranks", "12", "--density", "2%", "--ranks-per-node", "4", "--fat-tree", "2:2", "--seed", "7"]
        self.assertEqual(self.expect_success(*arguments).stdout, self.expect_success(*arguments).stdout)

    def test_dense_rows_take_the_same_time_at_every_density(self):
        times = seconds_of(self.expect_success("--density", "1%", "20%", "--algorithm", "dense_ring"))
        self.assertEqual(times["8", "0.01", "dense_ring"], times["8", "0.2", "dense_ring"])

    def test_networks_differ_in_the_way_they_are_described(self):
        def ring(*arguments):
            return next(iter(seconds_of(self.expect_success("--algorithm", "dense_ring", "--density", "1%",
                                                            *arguments)).values()))
        self.assertLess(ring("--network", "aries"), ring("--network", "gige"))
        self.assertLess(ring("--network", "gige"), ring("--network", "wan_100mbit"))
        self.assertLess(ring(), ring("--slow-link", "3:4"))
        self.assertLess(ring(), ring("--straggler", "3:50"))
        self.assertLess(ring("--no-computation"), ring())
        self.assertLess(ring("--ranks-per-node", "8"), ring())

    def test_json_has_the_shape_of_bench_and_goes_into_a_report(self):
        with tempfile.TemporaryDirectory() as folder:
            simulated, benched = pathlib.Path(folder, "simulated.jsonl"), pathlib.Path(folder, "benched.jsonl")
            self.expect_success("--density", "1%", "--slow-link", "1:3", "--json", str(simulated))
            subprocess.run([TULLE, "bench", "allreduce", "--transport", "sim", "--dimension", "16K", "--density", "1%",
                            "--json", str(benched)], check=True, capture_output=True)
            rows = [json.loads(line) for line in simulated.read_text().splitlines()]
            bench_fields = set(json.loads(benched.read_text().splitlines()[0])) - {"lab"}
            self.assertLessEqual(bench_fields, set(rows[0]))
            self.assertTrue(all(row["network"] == "gige" and row["seconds_are_virtual"] for row in rows))
            self.assertEqual(rows[0]["slow_links"], [{"node": 1, "factor": 3.0}])
            page = pathlib.Path(folder, "page.html")
            report = subprocess.run([TULLE, "report", str(simulated), "-o", str(page)], capture_output=True, text=True)
            if "without Chart.js" not in report.stderr:
                self.assertEqual(report.returncode, 0, report.stderr)

    def test_phantoms_are_named_and_not_called_verified(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "rows.jsonl")
            result = self.expect_success("--ranks", "200", "--density", "1%", "--memory", "1M", "--json", str(path))
            self.assertTrue(all(row[-2:] == ["phantom", "-"] for row in rows_of(result)))
            self.assertTrue(all(json.loads(line)["verified"] is None for line in path.read_text().splitlines()))

    def test_rows_that_select_are_simulated_with_k(self):
        result = self.expect_success("--ranks", "6", "--k", "1%", "--teams", "3", "--network", "10gbe")
        self.assertEqual([row[3].split("=")[0] for row in rows_of(result)],
                         ["auto", "spardl", "topka", "topkdsa", "gtopk", "oktopk"])

    def test_a_network_file_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "cluster.json")
            path.write_text('{"preset": "ib_fdr", "name": "ours", "ranks_per_node": 2}')
            self.assertIn("# ours: 1.5 us", self.expect_success("--network", str(path), "--density", "1%").stdout)
            path.write_text('{"latency": 1}')
            refused = simulate("--network", str(path))
            self.assertEqual(refused.returncode, 2)
            self.assertIn("no field 'latency'; there are alpha_seconds", refused.stderr)
            self.assertIn(str(path), refused.stderr)

    def test_bad_flags_are_named_with_what_is_allowed(self):
        for flags, words in {
            ("--network", "lan"): ["--network", "'lan'", "gige, 10gbe, ib_fdr, aries, wan_100mbit", "JSON file"],
            ("--ranks", "5000"): ["--ranks", "from 1 to 4096"],
            ("--ranks", "0"): ["--ranks", "from 1 to 4096"],
            ("--fat-tree", "16"): ["--fat-tree", "16:4"],
            ("--fat-tree", "16:5"): ["--network", "oversubscription", "does not divide the 16"],
            ("--straggler", "3"): ["--straggler", "3:2"],
            ("--straggler", "9:2"): ["rank 9", "there are 8"],
            ("--ranks-per-node", "4", "--slow-link", "2:3"): ["node 2", "there are 2"],
            ("--slow-link", "1:0"): ["slow_links", "factor 0"],
            ("--data", "some"): ["--data", "auto, real, phantom"],
            ("--memory", "lots"): ["--memory"],
            ("--algorithm", "mpi_native"): ["--algorithm", "mpirun"],
            ("--algorithm", "spardl"): ["--algorithm", "needs --k"],
            ("--json", "/nonexistent/x"): ["--json", "/nonexistent/x"],
        }.items():
            with self.subTest(flags=flags):
                refused = simulate(*flags)
                self.assertEqual(refused.returncode, 2, refused.stdout)
                self.assertEqual(refused.stdout, "")
                for word in words:
                    self.assertIn(word, refused.stderr)

    def test_help_has_examples(self):
        self.assertIn("--fat-tree 16:4", simulate("--help").stdout)


if __name__ == "__main__":
    unittest.main()
