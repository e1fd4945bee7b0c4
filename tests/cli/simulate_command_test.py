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
            for wrong in '{"ranks_per_node": 2.7}', '{"nodes_per_leaf": 4294967297}', '{"stragglers": [{"rank": 1.5, "factor": 2}]}':
                path.write_text(wrong)
                refused = simulate("--network", str(path))
                self.assertEqual(refused.returncode, 2, wrong)
                self.assertIn("is not a whole number", refused.stderr)

    def test_dense_rows_run_again_at_each_density_where_zeros_are_coded(self):
        with tempfile.TemporaryDirectory() as folder:
            rows = pathlib.Path(folder, "rows.jsonl")
            self.expect_success("--ranks", "4", "--density", "0.01%", "50%", "--json", str(rows),
                                "--algorithm", "dense_split_allgather", "--value-coding", "three_lc",
                                "--coded-values", "both")
            sent = [json.loads(line)["bytes_sent_total"] for line in rows.read_text().splitlines()]
            self.assertGreater(sent[1], 2 * sent[0])

    def trace(self, folder, *lines):
        path = pathlib.Path(folder, f"net{len(lines)}.jsonl")
        head = {"kind": "trace", "model": "two layers", "forward_seconds": 0.001}
        layers = [{"parameter": "hidden", "values": 50000, "backward_seconds": 0.002},
                  {"parameter": "output", "values": 20000, "backward_seconds": 0.001}]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines or (head, *layers)))
        return str(path)

    def test_a_trace_gives_a_row_for_each_recipe_and_number_of_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            rows = pathlib.Path(folder, "rows.jsonl")
            command = [TULLE, "simulate", "--trace", self.trace(folder), "--ranks", "2,5", "--json", str(rows),
                       "--recipe", "topk:16/512|qsgd:4", "spardl:1%", "--network", "aries"]
            result = subprocess.run(command, capture_output=True, text=True, timeout=100)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual([row[:2] for row in rows_of(result)],
                             [[ranks, recipe] for ranks in ("2", "5")
                              for recipe in ("dense", "topk:16/512|qsgd:4", "spardl:1%")])
            objects = [json.loads(line) for line in rows.read_text().splitlines()]
            self.assertEqual(len(objects), 6)
            for row in objects:
                self.assertEqual((row["kind"], row["model"], row["network"]), ("trace_step", "two layers", "aries"))
                self.assertAlmostEqual(row["compute_seconds"], 0.004)
                parts = sum(row[part] for part in ("compute_seconds", "pack_seconds", "unpack_seconds",
                                                   "exposed_seconds"))
                self.assertAlmostEqual(row["seconds"], parts, places=6)
            self.assertEqual(objects[0]["speedup"], 1)

    def test_a_trace_with_a_server_and_without_overlap(self):
        with tempfile.TemporaryDirectory() as folder:
            command = [TULLE, "simulate", "--trace", self.trace(folder), "--ranks", "3", "--recipe", "int8"]
            for flags in ([], ["--no-overlap"], ["--servers", "1"]):
                result = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=100)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual([row[1] for row in rows_of(result)], ["dense", "int8"])
                self.assertEqual("more serve" in result.stdout, "--servers" in flags)
                self.assertEqual("after back-propagation" in result.stdout, "--no-overlap" in flags)

    def test_bad_traces_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            good, missing = self.trace(folder), os.path.join(folder, "none.jsonl")
            for flags, words in ((["--recipe", "dense"], "--trace: is missing"),
                                 (["--trace", missing], missing),
                                 (["--trace", good, "--recipe", "topk:2x"], "--recipe"),
                                 (["--trace", good, "--dimension", "5"], "--dimension excludes --trace"),
                                 (["--trace", self.trace(folder, {"kind": "trace"}, {"parameter": "w"})], "line 2")):
                result = subprocess.run([TULLE, "simulate", *flags], capture_output=True, text=True, timeout=100)
                self.assertNotEqual(result.returncode, 0, flags)
                self.assertIn(words, result.stderr + result.stdout)

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
