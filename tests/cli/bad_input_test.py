"""Files that are not what they should be, and disks that are full, at every door of the command. TULLE is the program.

Whatever a file holds, the command ends by itself, with a code that is not 0 and is no signal, and says one thing that
names the file. `Door` is a row of the table: a command that reads a file, and one that is good.
"""
import dataclasses
import json
import os
import resource
import signal
import struct
import subprocess
import tempfile
import typing
import unittest

TULLE = os.environ["TULLE"]
SECONDS = 60  # more than any of them takes; a command that hangs is a failure


# Root may read every file, unless it gives that up.
WITHOUT_PRIVILEGES = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


def run(*arguments, limit_bytes=None, first=()):
    """`limit_bytes`: files grow no further, as on a disk that is full. `first`: what starts the command."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # write() then fails, as it does for lack of space
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
    return subprocess.run([*first, TULLE, *arguments], capture_output=True, timeout=SECONDS, stdin=subprocess.DEVNULL,
                          preexec_fn=None if limit_bytes is None else limit, encoding="utf-8", errors="replace")


def crc32c(data):
    checksum = 0xFFFFFFFF
    for byte in data:
        checksum ^= byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (0x82F63B78 if checksum & 1 else 0)
    return checksum ^ 0xFFFFFFFF


def put(data, place, form, *numbers):
    return data[:place] + struct.pack(form, *numbers) + data[place + struct.calcsize(form):]


# Each format with its checksums mended, so that what they protect is read, too.

def mend_coded(data):
    data = put(data, 24, "<I", crc32c(data[32:]))
    return put(data, 28, "<I", crc32c(data[:28]))


def mend_csr(data):
    table, blocks = struct.unpack_from("<QQ", data, 40)
    if blocks <= 4 and table + 40 * blocks <= len(data):
        data = put(data, 56, "<I", crc32c(data[table:table + 40 * blocks]))
    return put(data, 60, "<I", crc32c(data[:60]))


def mend_model(data):
    return put(data, 12, "<I", crc32c(data[24:]))


def mend_checkpoint(data):
    return put(data, 16, "<I", crc32c(data[24:]))


@dataclasses.dataclass
class Binary:
    """Where the numbers of a format lie, and how its checksums are mended after one of them was changed."""
    counts: typing.List[int]  # places of 64-bit counts and offsets
    mend: typing.Callable


FORMATS = {"coded": Binary([8, 16], mend_coded), "csr": Binary([16, 24, 32, 40, 48], mend_csr),
           "model": Binary([16], mend_model), "checkpoint": Binary([8], mend_checkpoint)}


@dataclasses.dataclass
class Door:
    """`command` has FILE where the file stands, and OUT where something may be written."""
    name: str
    good: str
    command: typing.List[str]
    binary: typing.Optional[Binary] = None
    texts: typing.Dict[str, bytes] = dataclasses.field(default_factory=dict)  # more that is bad
    takes_anything: bool = False  # any bytes are values: only files that cannot be read are refused


DEEP = b"[" * 200_000 + b"]" * 200_000
BAD_JSON = {"cut": b'{"format": "tulle', "no object": b"[1, 2]", "not UTF-8": b'{"\xff": 1}', "text": b"hello\n",
            "deep": DEEP, "deep value": b'{"version": ' + DEEP + b', "alpha_seconds": ' + DEEP + b"}",
            "another": b'{"format": "tulle profile", "version": 99, "colour": 1}', "number": b"1e999"}
BAD_LIBSVM = {"no label": b"x 1:1\n", "huge index": b"1 99999999999999999999:1\n", "twice": b"1 3:1 3:2\n",
              "no value": b"1 3:\n", "cut": b"1 3:1 4", "infinite": b"1 3:1e999\n", "zeros": b"\0" * 4096,
              "not text": bytes(range(128, 256)) * 4, "cut gzip": b"\x1f\x8b\x08\0\0\0\0\0\0\x03abc",
              "gzip of nothing": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd" + b"\xff" * 40}
TRAIN = ["train", "linear", "--epochs", "1", "--ranks", "1", "--transport", "threads"]
SIMULATE_TRAINING = [*TRAIN[:-1], "sim"]
DOORS = [
    Door("convert", "data.libsvm", ["convert", "FILE", "OUT"], texts=BAD_LIBSVM),
    Door("featurize text", "data.text", ["featurize", "text", "FILE", "OUT"], texts={"no tab": b"word\n"}),
    Door("train on text", "data.libsvm", [*TRAIN, "--data", "FILE"], texts=BAD_LIBSVM),
    Door("train on csr", "data.tcsr", [*TRAIN, "--data", "FILE"], FORMATS["csr"]),
    Door("test on csr", "data.tcsr", [*TRAIN, "--data", "DATA", "--test", "FILE"], FORMATS["csr"]),
    Door("train on csv", "data.csv", [*TRAIN, "--format", "csv", "--data", "FILE"], texts={"words": b"1,x\n"}),
    Door("resume", "checkpoint", [*TRAIN, "--data", "DATA", "--checkpoint", "FILE", "--resume"], FORMATS["checkpoint"]),
    Door("predict by a model", "model", ["predict", "--data", "DATA", "--model", "FILE"], FORMATS["model"]),
    Door("predict rows", "data.tcsr", ["predict", "--model", "MODEL", "--data", "FILE"], FORMATS["csr"]),
    Door("cluster", "data.tcsr", ["cluster", "--ranks", "1", "--clusters", "1", "--data", "FILE"], FORMATS["csr"]),
    Door("pca", "data.tcsr", ["pca", "--ranks", "1", "--components", "1", "--data", "FILE"], FORMATS["csr"]),
    Door("encode", "values.f32", ["encode", "FILE", "OUT"], takes_anything=True, texts={"5 bytes": b"12345"}),
    Door("decode", "coded", ["decode", "FILE", "OUT"], FORMATS["coded"]),
    Door("profile of explain", "profile.json", ["explain", "--profile", "FILE"], texts=BAD_JSON),
    Door("profile of bench", "profile.json", ["bench", "allreduce", "--profile", "FILE", "--ranks", "2", "--transport",
                                              "threads", "--dimension", "64", "--repeats", "1"], texts=BAD_JSON),
    Door("profile of plan", "profile.json", ["plan", "--profile", "FILE"], texts=BAD_JSON),
    Door("profile of bench gradient", "profile.json",
         ["bench", "gradient", "--profile", "FILE", "--ranks", "2", "--transport", "threads", "--shapes", "64",
          "--repeats", "1", "--recipe", "dense"], texts=BAD_JSON),
    Door("network of a training", "network.json", [*SIMULATE_TRAINING, "--data", "DATA", "--network", "FILE"],
         texts=BAD_JSON),
    Door("network", "network.json", ["simulate", "--network", "FILE", "--ranks", "2", "--dimension", "64"],
         texts={**BAD_JSON, "fraction": b'{"ranks_per_node": 1.5}', "negative": b'{"nodes_per_leaf": -1}',
                "huge": b'{"ranks_per_node": 99999999999999999999}', "no list": b'{"stragglers": [1]}'}),
    Door("trace", "trace.jsonl", ["simulate", "--trace", "FILE", "--ranks", "2", "--recipe", "dense"],
         texts={"cut": b'{"kind": "tra', "no parameters": b'{"kind": "trace"}\n', "deep": DEEP, "another": b'{"kind": "x"}\n',
                "negative": b'{"kind": "trace"}\n{"parameter": "a", "values": -1}\n',
                "infinite": b'{"kind": "trace", "forward_seconds": 1e999}\n{"parameter": "a", "values": 1}\n',
                "twice": b'{"kind": "trace"}\n' + b'{"parameter": "a", "values": 8}\n' * 2}),
    Door("report", "rows.jsonl", ["report", "FILE", "-o", "OUT"],
         texts={"cut": b'{"kind": "alg', "no rows": b"\n\n", "missing": b'{"kind": "allreduce"}\n', "deep": DEEP + b"\n"}),
    Door("watch", "steps.jsonl", ["watch", "FILE", "--once"], takes_anything=True),
]


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        rows = [f"{1 if i % 2 else -1} {1 + i % 7}:1.5 {9 + i % 11}:0.25" for i in range(60)]
        cls.write("data.libsvm", "\n".join(rows) + "\n")
        cls.write("data.csv", "1,2,3\n-1,0,1\n")
        cls.write("data.text", "1\tone two\n-1\tthree\n")
        cls.write("network.json", json.dumps({"preset": "gige", "ranks_per_node": 2}))
        cls.write("trace.jsonl", '{"kind": "trace"}\n{"parameter": "a", "values": 64, "backward_seconds": 0.001}\n')
        cls.write("values.f32", struct.pack("<8f", *range(8)))
        cls.write("steps.jsonl", json.dumps({"kind": "stats", "step": 1, "seconds": 0.5}) + "\n")
        cls.make("convert", cls.path("data.libsvm"), cls.path("data.tcsr"))
        cls.make(*TRAIN, "--data", cls.path("data.tcsr"), "--checkpoint", cls.path("checkpoint"), "--out", cls.path("model"))
        cls.make("encode", "--codec", "qsgd", cls.path("values.f32"), cls.path("coded"))
        cls.make("probe", "--ranks", "2", "--transport", "sim", "--rounds", "1", "--largest", "256", "-o",
                 cls.path("profile.json"))
        cls.make("bench", "select", "--count", "100", "--repeats", "1", "--json", cls.path("rows.jsonl"))

    @classmethod
    def path(cls, name):
        return os.path.join(cls.directory.name, name)

    @classmethod
    def write(cls, name, data):
        with open(cls.path(name), "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)

    @classmethod
    def read(cls, name):
        with open(cls.path(name), "rb") as file:
            return file.read()

    @classmethod
    def make(cls, *arguments):
        done = run(*arguments)
        if done.returncode != 0:
            raise AssertionError(f"{arguments}: {done.stdout}{done.stderr}")

    def command(self, door, path):
        places = {"FILE": path, "OUT": self.path("out"), "DATA": self.path("data.tcsr"), "MODEL": self.path("model")}
        return [places.get(word, word) for word in door.command]

    def expect_refusal(self, done, *names):
        words = done.stdout + done.stderr
        self.assertIn(done.returncode, (1, 2), words)
        for trace in ("terminate called", "Aborted", "bad_alloc", "AddressSanitizer", "Assertion"):
            self.assertNotIn(trace, words)
        self.assertTrue(any(name in words for name in names), f"none of {names} is named in: {words}")
        self.assertRegex(done.stderr, "(?m)^tulle: ")


def shortened(doors):
    """Binary doors, each with how many cases it needs: all of them where its format comes first, then a few."""
    seen = []
    for door in doors:
        if door.binary is not None:
            yield door, 2 if door.binary in seen else None
            seen.append(door.binary)


class Readers(Case):
    def expect_bad(self, door, what, data):
        with self.subTest(door=door.name, what=what):
            self.write("bad", data)
            self.expect_refusal(run(*self.command(door, self.path("bad"))), self.path("bad"))

    def test_good_files_are_read(self):
        for door in DOORS:
            with self.subTest(door=door.name):
                self.write("good", self.read(door.good))
                done = run(*self.command(door, self.path("good")))
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_what_is_no_file_is_refused(self):
        os.makedirs(self.path("directory"), exist_ok=True)
        for door in DOORS:
            # Reading /proc/self/mem fails, as on a disk with errors: its size is 0, so that readers may find it empty.
            others = [] if door.takes_anything else ["/proc/self/mem"]
            missing = [] if door.name == "resume" else [self.path("missing")]  # a run that begins has no checkpoint
            for path in [self.path("directory"), *missing, *others]:
                with self.subTest(door=door.name, path=path):
                    self.expect_refusal(run(*self.command(door, path)), path)

    def test_files_that_may_not_be_read_are_refused(self):
        for door in DOORS:
            with self.subTest(door=door.name):
                self.write("forbidden", self.read(door.good))
                os.chmod(self.path("forbidden"), 0)
                self.expect_refusal(run(*self.command(door, self.path("forbidden")), first=WITHOUT_PRIVILEGES),
                                    self.path("forbidden"))
                os.remove(self.path("forbidden"))

    def test_nothing_in_a_file_is_refused(self):
        for door in DOORS:
            if not door.takes_anything:
                self.expect_bad(door, "empty", b"")

    def test_bad_text_is_refused(self):
        for door in DOORS:
            for what, text in door.texts.items():
                self.expect_bad(door, what, text)

    def test_cut_and_damaged_files_are_refused(self):
        for door, most in shortened(DOORS):
            good = self.read(door.good)
            for length in (len(good) // 2, len(good) - 1, 1, 7, 23, 40)[:most]:
                self.expect_bad(door, f"cut at {length}", good[:length])
            for place in (len(good) // 2, 0, 5, 9, 17, 25, len(good) - 1)[:most]:
                damaged = good[:place] + bytes([good[place] ^ 0x40]) + good[place + 1:]
                self.expect_bad(door, f"byte {place} changed", damaged)

    def test_counts_that_cannot_be_are_refused(self):
        for door, most in shortened(DOORS):
            good = self.read(door.good)
            for place in door.binary.counts[:most]:
                for count in (2**64 - 1, 2**63, 2**40 + 1, 2**32 + 7)[:most]:
                    data = door.binary.mend(put(good, place, "<Q", count))
                    self.expect_bad(door, f"{count} at {place}", data)


# Commands that write OUT.
WRITERS = {
    "convert": ["convert", "LIBSVM", "OUT"],
    "featurize text": ["featurize", "text", "TEXT", "OUT"],
    "generate": ["generate", "--rows", "10", "OUT"],
    "model": [*TRAIN, "--data", "DATA", "--out", "OUT"],
    "checkpoint": [*TRAIN, "--data", "DATA", "--checkpoint", "OUT"],
    "epochs": [*TRAIN, "--data", "DATA", "--json", "OUT"],
    "predictions": ["predict", "--model", "MODEL", "--data", "DATA", "--out", "OUT"],
    "centers": ["cluster", "--ranks", "1", "--clusters", "1", "--data", "DATA", "--out", "OUT"],
    "components": ["pca", "--ranks", "1", "--components", "1", "--data", "DATA", "--out", "OUT"],
    "coded": ["encode", "VALUES", "OUT"],
    "decoded": ["decode", "CODED", "OUT"],
    "profile": ["probe", "--ranks", "2", "--transport", "sim", "--rounds", "1", "--largest", "256", "-o", "OUT"],
    "report": ["report", "ROWS", "-o", "OUT"],
    "rows of select": ["bench", "select", "--count", "100", "--repeats", "1", "--json", "OUT"],
    "rows of codec": ["bench", "codec", "--count", "100", "--repeats", "1", "--json", "OUT"],
    "rows of allreduce": ["bench", "allreduce", "--ranks", "2", "--transport", "threads", "--dimension", "64", "--repeats",
                          "1", "--json", "OUT"],
    "rows of simulate": ["simulate", "--ranks", "2", "--dimension", "64", "--json", "OUT"],
    "rows of gradient": ["bench", "gradient", "--ranks", "2", "--transport", "threads", "--recipe", "dense", "--shapes", "64",
                         "--repeats", "1", "--json", "OUT"],
    "steps": ["bench", "gradient", "--ranks", "2", "--transport", "threads", "--recipe", "dense", "--shapes", "64",
              "--repeats", "1", "--steps", "OUT"],
    "trace": ["bench", "gradient", "--ranks", "2", "--transport", "threads", "--recipe", "dense", "--shapes", "64",
              "--repeats", "1", "--trace", "OUT"],
}


class Writers(Case):
    def command_of(self, writer, out):
        places = {"OUT": out, "DATA": "data.tcsr", "MODEL": "model", "LIBSVM": "data.libsvm", "TEXT": "data.text",
                  "VALUES": "values.f32", "CODED": "coded", "ROWS": "rows.jsonl"}
        return [(out if word == "OUT" else self.path(places[word])) if word in places else word for word in writer]

    def test_they_write(self):
        for name, writer in WRITERS.items():
            with self.subTest(writer=name):
                out = self.path("written")
                done = run(*self.command_of(writer, out))
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertGreater(os.path.getsize(out), 0)
                os.remove(out)

    def test_a_full_disk_is_told(self):
        for name, writer in WRITERS.items():
            for out, limit in (("/dev/full", None), (self.path("limited"), 8)):
                with self.subTest(writer=name, out=out):
                    self.expect_refusal(run(*self.command_of(writer, out), limit_bytes=limit), out)
                    self.assertFalse(os.path.exists(out + ".part"), "half a file is left")
            if os.path.exists(self.path("limited")):
                os.remove(self.path("limited"))

    def test_what_cannot_be_made_is_told(self):
        for name, writer in WRITERS.items():
            for out in (self.directory.name, self.path("missing/out"), "/proc/self/out"):
                with self.subTest(writer=name, out=out):
                    self.expect_refusal(run(*self.command_of(writer, out)), out)

    def test_standard_output_that_is_full_is_told(self):
        for arguments in (["list"], ["explain"], ["list", "codecs", "--json"], ["--help"], ["encode", "--json",
                          self.path("values.f32"), self.path("out")]):
            with self.subTest(arguments=arguments), open("/dev/full", "wb") as full:
                done = subprocess.run([TULLE, *arguments], stdout=full, stderr=subprocess.PIPE, timeout=SECONDS)
                self.assertEqual(done.returncode, 1, done.stderr)


# ---------------------------------------------------------------- deep networks

# Loading libtorch takes half a second, so these are few: a fuzzer (fuzz/nn_data.cpp) has the rest of the formats.
NN = ["train", "nn", "--transport", "threads", "--ranks", "1", "--steps", "1", "--batch", "1", "--hidden", "4"]


def idx(dimensions, data):
    return struct.pack(f">I{len(dimensions)}I", 0x800 + len(dimensions), *dimensions) + data


PICTURES = {"train-images-idx3-ubyte": idx([2, 2, 2], bytes(8)), "train-labels-idx1-ubyte": idx([2], b"\0\1"),
            "t10k-images-idx3-ubyte": idx([1, 2, 2], bytes(4)), "t10k-labels-idx1-ubyte": idx([1], b"\1")}
CIFAR = {"data_batch_1.bin": bytes(3073), "test_batch.bin": bytes(3073)}
SENTENCES = {"atis.train.ctf": b"0 |S0 1:1 |S1 0:1 |S2 1:1\n", "atis.test.ctf": b"0 |S0 1:1 |S1 0:1 |S2 1:1\n"}

# The files of a data set that are good, the model that reads them, and what one of them becomes.
BAD_SETS = {
    "cut pictures": (PICTURES, "mlp", "train-images-idx3-ubyte", PICTURES["train-images-idx3-ubyte"][:-1]),
    "2^32 labels": (PICTURES, "mlp", "t10k-labels-idx1-ubyte", idx([2**32 - 1], b"\1")),
    "cut record": (CIFAR, "mlp", "test_batch.bin", bytes(3000)),
    "sentence without a word": (SENTENCES, "tagger", "atis.train.ctf", b"0 |S1 0:1\n"),
    "table with holes": ({"data.tsv": b""}, "mlp", "data.tsv", b"1 2\ta\n1\tb\n3 4\ta\n"),
    "no text": ({"text": b""}, "lstm", "text", b""),
}


@unittest.skipUnless(os.path.exists(os.path.join(os.path.dirname(TULLE), "tulle-nn")), "this tulle has no libtorch")
class DeepNetworks(Case):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.write_set(PICTURES)
        cls.outputs = {flag: cls.path(flag.strip("-")) for flag in ("--json", "--step-json", "--step-trace", "--trace")}
        cls.make(*NN, "--data", cls.path("set"), "--checkpoint", cls.path("run"),
                 *(word for pair in cls.outputs.items() for word in pair))

    @classmethod
    def write_set(cls, files):
        os.makedirs(cls.path("set"), exist_ok=True)
        for name in os.listdir(cls.path("set")):
            os.remove(cls.path(f"set/{name}"))
        for name, data in files.items():
            cls.write(f"set/{name}", data)

    def data_of(self, files):
        """A directory, or its only file where that is the data."""
        return self.path("set/" + next(iter(files))) if len(files) == 1 else self.path("set")

    def test_outputs_are_written(self):
        for flag, path in self.outputs.items():
            self.assertGreater(os.path.getsize(path), 0, flag)
        self.assertGreater(os.path.getsize(self.path("run.0-of-1")), 0)

    def test_bad_data_is_refused(self):
        for what, (files, model, name, data) in BAD_SETS.items():
            with self.subTest(what=what):
                self.write_set({**files, name: data})
                self.expect_refusal(run(*NN, "--model", model, "--data", self.data_of(files)), self.path(f"set/{name}"))

    def test_data_that_is_not_there_is_refused(self):
        self.write_set({"something": b"else"})
        for path in (self.path("set"), self.path("missing")):
            with self.subTest(path=path):
                self.expect_refusal(run(*NN, "--data", path), path)

    def test_bad_checkpoints_are_refused(self):
        self.write_set(PICTURES)
        good = self.read("run.0-of-1")
        for what, data in {"cut": good[:-1], "a byte changed": good[:40] + b"\xff" + good[41:],
                           "2^63": mend_checkpoint(put(good, 8, "<Q", 2**63))}.items():
            with self.subTest(what=what):
                self.write("bad.0-of-1", data)
                self.expect_refusal(run(*NN, "--data", self.path("set"), "--checkpoint", self.path("bad"), "--resume"),
                                    self.path("bad.0-of-1"))

    def test_full_disks_are_told(self):
        self.write_set(PICTURES)
        for flag, out, limit in [*((flag, "/dev/full", None) for flag in self.outputs),
                                 ("--checkpoint", self.path("limited"), 8)]:
            with self.subTest(flag=flag):
                self.expect_refusal(run(*NN, "--data", self.path("set"), flag, out, limit_bytes=limit), out)
        self.assertEqual([name for name in os.listdir(self.directory.name) if name.startswith("limited")], [])

    def test_what_cannot_be_made_is_told(self):
        self.write_set(PICTURES)
        for flag in ("--step-json", "--step-trace", "--checkpoint"):  # others are opened as those of train linear are
            with self.subTest(flag=flag):
                out = self.path("missing/out") if flag == "--checkpoint" else self.directory.name
                self.expect_refusal(run(*NN, "--data", self.path("set"), flag, out), out)


if __name__ == "__main__":
    unittest.main()
