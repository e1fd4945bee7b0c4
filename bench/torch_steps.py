"""What Tulle is worth to PyTorch: sparse sums beside torch.distributed's, training steps of DDP by method with the
accuracy that they come to, and what the hook costs beside the pipeline that it calls.

    torchrun --nproc_per_node=2 bench/torch_steps.py sparse --values 14700000 --density 0.001 0.01
    torchrun --nproc_per_node=2 bench/torch_steps.py step --model mlp --steps 10
    lab/lab with --hosts 8 --rate 1gbit --torch -- bench/torch_steps.py step      # one rank for each host
    torchrun --nproc_per_node=2 bench/torch_steps.py accuracy --model mlp --width 1024 --epochs 3
    torchrun --nproc_per_node=1 bench/torch_steps.py hook --model resnet20

Methods take turns, so that a disturbance hits all of them; what is printed are medians over steps of the slowest rank;
processor_seconds, which other programs disturb less, are the mean of all ranks.
Results are checked before they are timed. Rank 0 prints a line of JSON for each row.
"""
import argparse
import itertools
import json
import os
import pathlib
import statistics
import sys
import time
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

import tulle.torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from torch_models import TRAININGS  # noqa: E402

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


def mean(value):
    tensor = torch.tensor([float(value)], dtype=torch.float64)
    dist.all_reduce(tensor)
    return tensor.item() / dist.get_world_size()


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


DDP = nn.parallel.DistributedDataParallel


def _one_bucket(model):
    """With several buckets PyTorch's PowerSGD hook starts sums in callbacks, on ranks in different orders, and gloo, which
    goes by the order, aborts."""
    first, dist._DEFAULT_FIRST_BUCKET_BYTES = dist._DEFAULT_FIRST_BUCKET_BYTES, 1 << 40
    try:
        return DDP(model, bucket_cap_mb=1 << 20)
    finally:
        dist._DEFAULT_FIRST_BUCKET_BYTES = first


def made_model(arguments, seed=0):
    torch.manual_seed(seed)
    training = TRAININGS[arguments.model]
    return training.make(arguments.width or training.width)


class Trained:
    """A model that one method trains."""

    def __init__(self, method, arguments, seed=0):
        self.method = method
        model = made_model(arguments, seed)
        self.model = _one_bucket(model) if "powersgd_hook" in method else DDP(model)
        rate = arguments.rate or TRAININGS[arguments.model].rate
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rate, momentum=0.9)
        self.seconds, self.processor_seconds, self.bytes = [], [], []
        kind, _, rest = method.partition(" ")
        if kind == "tulle":
            tulle.torch.register(self.model, rest, optimizer=self.optimizer)
        elif kind == "fp16_hook":
            self.model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        elif kind.startswith("powersgd_hook"):
            state = powerSGD_hook.PowerSGDState(None, int(kind.partition(":")[2]), start_powerSGD_iter=2)
            self.model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        elif kind != "ddp":
            raise ValueError(f"no method is called {method}: there are {', '.join(METHODS)}, and tulle with any recipe")

    def step(self, inputs, labels):
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(inputs), labels).backward()
        self.optimizer.step()

    def timed_step(self, inputs, labels):
        dist.barrier()
        sent, computed, began = sent_bytes(), time.process_time(), time.perf_counter()
        self.step(inputs, labels)
        self.seconds.append(largest(time.perf_counter() - began))
        self.processor_seconds.append(mean(time.process_time() - computed))
        self.bytes.append(largest(sent_bytes() - sent))


def batches(examples, batch, seed):
    """This rank's share of all examples, in an order of their own for each seed."""
    rank, size = dist.get_rank(), dist.get_world_size()
    order = torch.randperm(len(examples.labels), generator=torch.Generator().manual_seed(seed))[rank::size]
    for step in range(len(examples.labels) // size // batch):
        rows = order[step * batch : (step + 1) * batch]
        yield examples.inputs[rows], examples.labels[rows]


def measure_steps(arguments):
    examples = TRAININGS[arguments.model].examples("train", arguments.synthetic).first(4000)
    given = list(batches(examples, arguments.batch, 0))
    trained = [Trained(method, arguments) for method in arguments.methods]
    for number in range(arguments.steps + arguments.warm_up):
        for each in trained:
            each.timed_step(*given[number % len(given)])
    for each in trained:
        seconds, computed, sent = (statistics.median(taken[arguments.warm_up :])
                                   for taken in (each.seconds, each.processor_seconds, each.bytes))  # fmt: skip
        tell(part="step", model=arguments.model, data=examples.data, method=each.method, batch=arguments.batch,
             seconds=round(seconds, 5), processor_seconds=round(computed, 5), bytes=int(sent))  # fmt: skip


# ---------------------------------------------------------------- accuracy after the same epochs


@torch.no_grad()
def accuracy_of(model, examples):
    model.eval()
    pieces = zip(examples.inputs.split(500), examples.labels.split(500))
    right = sum(int((model(inputs).argmax(1) == labels).sum()) for inputs, labels in pieces)
    return right / len(examples.labels)


def rate_at(step, steps):
    """What the learning rate is multiplied with: it warms up for a tenth of the steps, then falls to 0."""
    return min((step + 1) / max(1, steps // 10), 1) * (1 - step / steps)


def trained_accuracy(method, seed, examples, tests, arguments):
    trained = Trained(method, arguments, seed)
    steps = arguments.epochs * (len(examples.labels) // dist.get_world_size() // arguments.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(trained.optimizer, lambda step: rate_at(step, steps))
    for epoch in range(arguments.epochs):
        for given in batches(examples, arguments.batch, 1000 * seed + epoch):
            trained.step(*given)
            schedule.step()
    return accuracy_of(trained.model.module, tests)


def measure_accuracy(arguments):
    training = TRAININGS[arguments.model]
    examples = training.examples("train", arguments.synthetic)
    tests = training.examples("t10k", arguments.synthetic)
    for method in arguments.methods:
        found = [trained_accuracy(method, seed, examples, tests, arguments) for seed in range(arguments.seeds)]
        tell(part="accuracy", model=arguments.model, data=examples.data, method=method, epochs=arguments.epochs,
             accuracy=round(statistics.mean(found), 4), of_seeds=[round(each, 4) for each in found])  # fmt: skip


# ---------------------------------------------------------------- the hook beside its pipeline


class _Replayed(torch.autograd.Function):
    """A number whose gradient by a parameter is known: back-propagation that computes nothing."""

    @staticmethod
    def forward(ctx, parameter, gradient):
        ctx.gradient = gradient
        return parameter.new_zeros(())

    @staticmethod
    def backward(ctx, _):
        return ctx.gradient, None


class Taken(NamedTuple):
    seconds: float
    processor_seconds: float  #: of all threads of the process

    @staticmethod
    def by(call):
        computed, began = time.process_time(), time.perf_counter()
        call()
        return Taken(time.perf_counter() - began, time.process_time() - computed)


class Replay(nn.Module):
    """Gives the parameters of a model the gradients that one step of it had, last parameters first."""

    def __init__(self, model, gradients):
        super().__init__()
        self.model, self.gradients = model, gradients

    def forward(self):
        return sum(_Replayed.apply(*each) for each in zip(self.model.parameters(), self.gradients))


def gradients_of(arguments):
    model = made_model(arguments)
    examples = TRAININGS[arguments.model].examples("train", arguments.synthetic).first(4000)
    inputs, labels = next(batches(examples, arguments.batch, 0))
    nn.functional.cross_entropy(model(inputs), labels).backward()
    return [each.grad.clone() for each in model.parameters()]


def _leave_alone(_, bucket):
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def _replay(recipe, arguments, gradients):
    """Back-propagation through a hook: the recipe's, or without one a hook that does nothing."""
    model = DDP(Replay(made_model(arguments), gradients))
    if recipe:
        # Momentum of no optimizer: what recipes with momentum warn of does not concern times.
        tulle.torch.register(model, recipe, optimizer=torch.optim.SGD(model.parameters(), lr=0, momentum=0.9))
    else:
        model.register_comm_hook(None, _leave_alone)

    def step():
        model.zero_grad()
        return Taken.by(model().backward)

    return step


def _pipeline(recipe, arguments, gradients):
    """The same gradients through a synchronizer, without torch."""
    names = [name for name, _ in made_model(arguments).named_parameters()]
    given = {name: gradient.numpy() for name, gradient in zip(names, gradients)}
    arrays = {name: gradient.copy() for name, gradient in given.items()}
    synchronizer = tulle.Synchronizer(arrays, recipe, comm=dist.group.WORLD)

    def step():
        for name, gradient in given.items():
            arrays[name][...] = gradient
        return Taken.by(lambda: synchronizer.step(arrays))

    return step


def measure_hook(arguments):
    gradients = gradients_of(arguments)
    for recipe in arguments.recipes:
        ways = {"hook": _replay(recipe, arguments, gradients), "no hook": _replay(None, arguments, gradients),
                "pipeline": _pipeline(recipe, arguments, gradients)}  # fmt: skip
        taken = {name: [] for name in ways}
        orders = itertools.cycle(itertools.permutations(ways))  # what ran before decides what is in the caches
        for number in range(arguments.steps + arguments.warm_up):
            for name in next(orders):
                dist.barrier()
                each = ways[name]()
                if number >= arguments.warm_up:
                    taken[name].append(Taken(largest(each.seconds), largest(each.processor_seconds)))
        medians = {name: Taken(*map(statistics.median, zip(*all))) for name, all in taken.items()}
        hook, pipeline = (np.array(medians[name]) for name in ("hook", "pipeline"))
        hook -= medians["no hook"]
        milliseconds, ratios = np.round(1e3 * np.array([hook, pipeline]), 3), np.round(hook / pipeline, 3)
        tell(part="hook", model=arguments.model, recipe=recipe, parameters=len(gradients),
             hook_milliseconds=milliseconds[0, 0], pipeline_milliseconds=milliseconds[1, 0], ratio=ratios[0],
             hook_processor_milliseconds=milliseconds[0, 1], pipeline_processor_milliseconds=milliseconds[1, 1],
             processor_ratio=ratios[1])  # fmt: skip


PARTS = {"sparse": measure_sparse, "step": measure_steps, "accuracy": measure_accuracy, "hook": measure_hook}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--values", type=int, default=14_700_000, help="sparse: of a tensor")
    parser.add_argument("--density", type=float, nargs="+", default=[0.001, 0.01], help="sparse: parts that are not zero")
    parser.add_argument("--repeats", type=int, default=5, help="sparse: sums of each kind")
    parser.add_argument("--model", choices=sorted(TRAININGS), default="mlp")
    parser.add_argument("--width", type=int, default=0, help="of hidden layers of mlp (4096) and lstm (512)")
    parser.add_argument("--methods", nargs="+", default=METHODS, help="step, accuracy: one of these, or tulle RECIPE")
    parser.add_argument("--recipes", nargs="+", default=["topk:1%"], help="hook: the recipes to measure")
    parser.add_argument("--batch", type=int, default=32, help="of each rank")
    parser.add_argument("--rate", type=float, default=0, help="learning rate; by default one for each model")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warm-up", type=int, default=5, help="steps that are not counted")
    parser.add_argument("--epochs", type=int, default=3, help="accuracy: of the training")
    parser.add_argument("--seeds", type=int, default=1, help="accuracy: trainings of each method, whose mean is told")
    parser.add_argument("--synthetic", action="store_true", help="makes up examples")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    PARTS[arguments.part](arguments)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
