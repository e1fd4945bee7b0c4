"""tulle encode, decode, list codecs and bench codec as their users run them. TULLE is the program."""
import array
import json
import os
import subprocess
import tempfile
import unittest

TULLE = os.environ["TULLE"]


def run(*arguments):
    return subprocess.run([TULLE, *arguments], capture_output=True, text=True, timeout=50)


class CodecCommands(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = lambda name: os.path.join(directory.name, name)
        self.values = array.array("f", [(-1) ** i * (i % 37) / 37 for i in range(5000)])
        self.write("in.f32", self.values.tobytes())

    def write(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def encode(self, codec, *flags):
        return run("encode", "--codec", codec, *flags, self.path("in.f32"), self.path("coded"))

    def decode(self):
        return run("decode", self.path("coded"), self.path("out.f32"))

    def test_exact_codecs_give_the_file_back(self):
        for codec in ["raw", "f32"]:
            self.assertEqual(self.encode(codec).returncode, 0)
            self.assertEqual(self.decode().returncode, 0)
            self.assertEqual(self.read("out.f32"), self.read("in.f32"))

    def test_three_lc_gives_three_values_and_says_what_it_lost(self):
        result = json.loads(self.encode("three_lc:s=1.5", "--json").stdout)
        self.assertLess(result["bits_per_value"], 1.7)
        self.assertGreater(result["ratio"], 18)
        self.assertEqual(self.decode().returncode, 0)
        decoded = array.array("f", self.read("out.f32"))
        self.assertEqual(len(set(decoded)), 3)
        largest = max(abs(a - b) for a, b in zip(decoded, self.values))
        self.assertAlmostEqual(result["error_largest"], largest, places=6)

    def test_damaged_files_are_refused(self):
        self.encode("qsgd")
        coded = self.read("coded")
        for place in [0, 4, 5, 7, 9, 20, 30, 40, len(coded) - 1]:
            self.write("coded", coded[:place] + bytes([coded[place] ^ 1]) + coded[place + 1:])
            result = self.decode()
            self.assertEqual(result.returncode, 1, place)
            self.assertIn("is no coded file", result.stderr)
        self.write("coded", coded[:-1])
        self.assertIn("bad length", self.decode().stderr)

    def test_bad_use_is_told(self):
        self.assertIn("there are raw, f32", self.encode("zip").stderr)
        self.assertEqual(self.encode("zip").returncode, 2)
        self.write("in.f32", b"12345")
        self.assertIn("no multiple of the 4 of f32", self.encode("raw").stderr)
        self.assertIn("missing: No such file", run("decode", self.path("missing"), self.path("out.f32")).stderr)
        self.assertRegex(run("list", "horses").stderr, "there are algorithms.*codecs")

    def test_list_names_every_codec(self):
        rows = json.loads(run("list", "codecs", "--json").stdout)
        names = {row["name"] for row in rows}
        self.assertTrue({"rice", "delta_vbyte", "bitmap", "qsgd", "three_lc", "same_sign_mean"} <= names)
        self.assertEqual({row["exactness"] for row in rows if row["kind"] == "index"}, {"exact"})

    def test_bench_checks_and_writes_rows(self):
        result = run("bench", "codec", "--count", "20000", "--values", "gaussian", "--density", "0.1", "--repeats", "1",
                     "--codec", "qsgd:bits=4,norm=max", "--codec", "three_lc", "--json", self.path("rows.jsonl"))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        rows = [json.loads(line) for line in self.read("rows.jsonl").decode().splitlines()]
        self.assertTrue(all(row["verified"] and row["ratio"] > 0 for row in rows))
        rice = next(row for row in rows if row["codec"] == "rice")
        self.assertLess(rice["bits_per_value"], 1.03 * rice["entropy_bits"])


if __name__ == "__main__":
    unittest.main()
