"""The networks that bench/torch_steps.py trains, and the data that each of them reads.

Fashion-MNIST is Debian's (dataset-fashion-mnist); MNIST, CIFAR-10 and ATIS are looked for in TULLE_DATA_DIR, as
`tulle train nn` does. Where a file is missing, or --synthetic asks for it, examples are made up, and rows say so.
"""
import gzip
import lzma
import os
import pathlib
from typing import Callable, NamedTuple

import torch
from torch import nn

WORDS, INTENTS = 943, 26  # of ATIS
# Nine in ten utterances have fewer words; of longer ones the last are read.
MOST_WORDS = 20


class Examples(NamedTuple):
    data: str  #: the data set's name
    inputs: torch.Tensor
    labels: torch.Tensor

    def first(self, count):
        return Examples(self.data, self.inputs[:count], self.labels[:count])


# ---------------------------------------------------------------- networks


class Lstm(nn.Module):
    """Reads an utterance word by word and tells its intent."""

    def __init__(self, width):
        super().__init__()
        self.embedding = nn.Embedding(WORDS + 1, 256)
        self.lstm = nn.LSTM(256, width, 2, batch_first=True)
        self.output = nn.Linear(width, INTENTS)

    def forward(self, words):
        return self.output(self.lstm(self.embedding(words))[0][:, -1])


class Block(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)])
        self.shortcut = nn.Conv2d(inside, outside, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, given):
        inner = self.norms[1](self.second(self.norms[0](self.first(given)).relu()))
        return (inner + self.shortcut(given)).relu()


class Resnet20(nn.Sequential):
    def __init__(self):
        blocks = [Block(16, 16, 1) for _ in range(3)]
        blocks += [Block(16, 32, 2), Block(32, 32, 1), Block(32, 32, 1), Block(32, 64, 2), Block(64, 64, 1), Block(64, 64, 1)]
        super().__init__(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), *blocks,
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))  # fmt: skip


def mlp(width):
    return nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


# ---------------------------------------------------------------- data


def _directories():
    chosen = os.environ.get("TULLE_DATA_DIR")
    return [pathlib.Path(chosen)] if chosen else []


def _read_first(directories, *names):
    """The content of the first file that is there, unpacked; None where none is."""
    for directory in directories:
        for name in names:
            path = directory / name
            if path.is_file():
                return (gzip if path.suffix == ".gz" else lzma).open(path).read()
    return None


def _idx(content, *shape):
    header = 4 + 4 * content[3]
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=header).view(*shape)


def read_images(part):
    """Rows of 784 values."""
    places = {"fashion-mnist": ([pathlib.Path("/usr/share/datasets/fashion-mnist")], ""), "mnist": (_directories(), "mnist-")}
    for name, (directories, prefix) in places.items():
        images = _read_first(directories, f"{prefix}{part}-images-idx3-ubyte.gz")
        labels = _read_first(directories, f"{prefix}{part}-labels-idx1-ubyte.gz")
        if images and labels:
            return Examples(name, _idx(images, -1, 784).float() / 255, _idx(labels, -1).long())
    return None


def read_cifar10(part):
    """Images of 3 x 32 x 32 values, normalized: of the first batch, and of the 2,000 or 10,000 to test with."""
    names = {"train": ["cifar10-data_batch_1.bin.xz"], "t10k": ["cifar10-test_batch.bin.xz", "cifar10-test_2000.bin.xz"]}
    content = _read_first(_directories(), *names[part])
    if content is None:
        return None
    rows = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, 3073)
    return Examples("cifar10", (rows[:, 1:].reshape(-1, 3, 32, 32).float() / 255 - 0.47) / 0.25, rows[:, 0].long())


def read_atis(part):
    """Numbers of words, those of short utterances behind WORDS, which stands for none; and the intents."""
    content = _read_first(_directories(), "atis.train.ctf.xz" if part == "train" else "atis.test.ctf.xz")
    if content is None:
        return None
    utterances: dict[str, list[int]] = {}
    intents: dict[str, int] = {}
    for line in content.decode().splitlines():
        number, *fields = line.split("|")
        for field in fields:
            kind, _, value = field.partition(" ")
            if kind == "S0":
                utterances.setdefault(number, []).append(int(value.split(":")[0]))
            elif kind == "S1":
                intents[number] = int(value.split(":")[0])
    words = torch.full((len(utterances), MOST_WORDS), WORDS)
    for row, each in enumerate(utterances.values()):
        last = each[-MOST_WORDS:]
        words[row, MOST_WORDS - len(last) :] = torch.tensor(last)
    return Examples("atis", words, torch.tensor([intents[number] for number in utterances]))


def _made_up(count, shape, classes):
    generator = torch.Generator().manual_seed(1)
    centers = torch.rand(classes, *shape, generator=generator)
    labels = torch.randint(0, classes, (count,), generator=generator)
    return Examples("synthetic", centers[labels] + 0.3 * torch.randn(count, *shape, generator=generator), labels)


def _made_up_words(count):
    centers = _made_up(count, (MOST_WORDS,), INTENTS)
    return centers._replace(inputs=(centers.inputs.clamp(0, 1) * (WORDS - 1)).long())


# ---------------------------------------------------------------- what goes together


class Training(NamedTuple):
    make: Callable[[int], nn.Module]  #: of a width
    width: int
    read: Callable[[str], Examples]
    make_up: Callable[[int], Examples]
    rate: float  #: the largest learning rate

    def examples(self, part, synthetic):
        """Of "train" or "t10k"."""
        return (None if synthetic else self.read(part)) or self.make_up(4000 if part == "train" else 1000)


TRAININGS = {
    "mlp": Training(mlp, 4096, read_images, lambda count: _made_up(count, (784,), 10), 0.05),
    "lstm": Training(Lstm, 512, read_atis, _made_up_words, 0.2),
    "resnet20": Training(lambda width: Resnet20(), 0, read_cifar10, lambda count: _made_up(count, (3, 32, 32), 10), 0.1),
}
