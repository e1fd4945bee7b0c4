"""What Tulle is worth to PyTorch: sparse sums beside torch.distributed's, and training steps of DDP by method.

    torchrun --nproc_per_node=2 bench/torch_steps.py sparse --values 14700000 --density 0.001 0.01
    torchrun --nproc_per_node=2 bench/torch_steps.py step --model mlp --steps 10
    lab/lab with --hosts 8 --rate 1gbit --torch -- bench/torch_steps.py step      # one rank for each host
    torchrun --nproc_per_node=4 bench/torch_steps.py step --epochs 3 --steps 0     # accuracy after the same epochs

Methods take turns, so that a disturbance hits all of them; what is printed are medians over steps of the slowest rank.
Results are checked before they are timed. Rank 0 prints a line of JSON for each row.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

import tulle.torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples"))
from torch_mnist import DATA, read_images  # noqa: E402

METHODS = ("ddp", "fp16_hook", "powersgd_hook:1", "powersgd_hook:2", "tulle dense", "tulle topk:1%",
           "tulle topk:16/512|qsgd:4", "tulle redsync", "tulle three_lc", "tulle powersgd")  # fmt: skip


def sent_bytes():
    """What this host's link has sent, in the lab; elsewhere nobody counts."""
    interface = os.environ.get("TULLE_LAB_INTERFACE")
    if not interface:
        return 0
    return int(pathlib.Path(f"/sys/class/net/{interface}/statistics/tx_bytes").read_text())


def largest(value):
    tensor = torch.tensor([float(value)], dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return tensor.item()


def tell(**row):
    if dist.get_rank() == 0:
        print(json.dumps({"ranks": dist.get_world_size(), "torch": torch.__version__, **row}), flush=True)


# ---------------------------------------------------------------- sums of sparse tensors


def sparse_tensor(values, density):
    count = max(1, int(values * density))
    generator = torch.Generator().manual_seed(dist.get_rank())
    indices = torch.randperm(values, generator=generator)[:count].sort().values[None]
    made = torch.sparse_coo_tensor(indices, torch.randint(1, 9, (count,), generator=generator).float(), (values,))
    return made._coalesced_(True)


def measure_sparse(arguments):
    ways = {
        "gloo sparse": lambda tensor: dist.all_reduce(tensor),
        "tulle sparse": lambda tensor: tulle.torch.all_reduce(tensor),
        "gloo dense": lambda tensor: dist.all_reduce(tensor),
        "tulle dense": lambda tensor: tulle.torch.all_reduce(tensor),
    }
    for density in arguments.density:
        mine = sparse_tensor(arguments.values, density)
        given = {name: mine.to_dense() if "dense" in name else mine for name in ways}
        sums = {name: _summed(way, given[name]).to_dense() for name, way in ways.items()}
        reference = sums["gloo dense"]
        assert all(torch.equal(each, reference) for each in sums.values()), "sums differ"
        times = {name: [] for name in ways}
        for _ in range(arguments.repeats):
            for name, way in ways.items():
                tensor = given[name].clone()
                dist.barrier()
                began = time.perf_counter()
                way(tensor)
                times[name].append(largest(time.perf_counter() - began))
        for name in ways:
            tell(part="sparse", values=arguments.values, density=density, way=name,
                 milliseconds=round(1e3 * statistics.median(times[name]), 3))  # fmt: skip


def _summed(way, tensor):
    tensor = tensor.clone()
    way(tensor)
    return tensor


# ---------------------------------------------------------------- training steps


class Lstm(nn.Module):
    """Reads an image row by row."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(28, 512, 2, batch_first=True)
        self.output = nn.Linear(512, 10)

    def forward(self, images):
        return self.output(self.lstm(images.view(-1, 28, 28))[0][:, -1])


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
        super().__init__(nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                         *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))  # fmt: skip


def mlp():
    return nn.Sequential(nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10))


MODELS = {"mlp": mlp, "lstm": Lstm, "resnet20": Resnet20}


DDP = nn.parallel.DistributedDataParallel


def _one_bucket(model):
    """With several buckets PyTorch's PowerSGD hook starts sums in callbacks, on ranks in different orders, and gloo, which
    goes by the order, aborts."""
    first, dist._DEFAULT_FIRST_BUCKET_BYTES = dist._DEFAULT_FIRST_BUCKET_BYTES, 1 << 40
    try:
        return DDP(model, bucket_cap_mb=1 << 20)
    finally:
        dist._DEFAULT_FIRST_BUCKET_BYTES = first


class Trained:
    """A model that one method trains."""

    def __init__(self, method, arguments):
        torch.manual_seed(0)
        self.method = method
        self.model = _one_bucket(MODELS[arguments.model]()) if "powersgd_hook" in method else DDP(MODELS[arguments.model]())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=arguments.rate, momentum=0.9)
        self.seconds, self.bytes = [], []
        kind, _, rest = method.partition(" ")
        if kind == "tulle":
            tulle.torch.register(self.model, rest, optimizer=self.optimizer)
        elif kind == "fp16_hook":
            self.model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        elif kind.startswith("powersgd_hook"):
            state = powerSGD_hook.PowerSGDState(None, int(kind.partition(":")[2]), start_powerSGD_iter=2)
            self.model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)

    def step(self, images, labels):
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(images), labels).backward()
        self.optimizer.step()

    def timed_step(self, images, labels):
        dist.barrier()
        sent, began = sent_bytes(), time.perf_counter()
        self.step(images, labels)
        self.seconds.append(largest(time.perf_counter() - began))
        self.bytes.append(largest(sent_bytes() - sent))


def batches(images, labels, batch, epoch):
    rank, size = dist.get_rank(), dist.get_world_size()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))[rank::size]
    for step in range(len(images) // size // batch):
        rows = order[step * batch : (step + 1) * batch]
        yield images[rows], labels[rows]


def measure_steps(arguments):
    synthetic = arguments.synthetic or not DATA.exists()
    images, labels = read_images("train", synthetic, 60_000 if arguments.epochs else 4000)
    trained = [Trained(method, arguments) for method in arguments.methods]
    given = list(batches(images[:4000], labels[:4000], arguments.batch, 0))
    for number in range(arguments.steps + arguments.warm_up):
        for each in trained:
            each.timed_step(*given[number % len(given)])
    for each in trained:
        seconds, sent = each.seconds[arguments.warm_up :], each.bytes[arguments.warm_up :]
        if seconds:
            tell(part="step", model=arguments.model, method=each.method, batch=arguments.batch,
                 seconds=round(statistics.median(seconds), 5), bytes=int(statistics.median(sent)))  # fmt: skip
    if arguments.epochs:
        tests = read_images("t10k", synthetic, 10_000)
        for method in arguments.methods:
            measure_accuracy(Trained(method, arguments), images, labels, tests, arguments)


@torch.no_grad()
def accuracy_of(model, images, labels):
    model.eval()
    right = sum(int((model(i).argmax(1) == l).sum()) for i, l in zip(images.split(500), labels.split(500)))
    model.train()
    return right / len(images)


def measure_accuracy(trained, images, labels, tests, arguments):
    for epoch in range(arguments.epochs):
        for given in batches(images, labels, arguments.batch, epoch):
            trained.step(*given)
    tell(part="accuracy", model=arguments.model, method=trained.method, epochs=arguments.epochs,
         accuracy=round(accuracy_of(trained.model.module, *tests), 4))  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("sparse", "step"))
    parser.add_argument("--values", type=int, default=14_700_000)
    parser.add_argument("--density", type=float, nargs="+", default=[0.001, 0.01])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--model", choices=sorted(MODELS), default="mlp")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--batch", type=int, default=32, help="of each rank")
    parser.add_argument("--rate", type=float, default=0.02, help="learning rate")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=0, help="also train so long and measure the accuracy")
    parser.add_argument("--synthetic", action="store_true")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    (measure_sparse if arguments.part == "sparse" else measure_steps)(arguments)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
