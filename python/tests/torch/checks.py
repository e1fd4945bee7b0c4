"""What one job of ranks checks: importing torch takes longer than most checks, so that ranks make many of them.

A file of checks decorates functions with @check and ends with run(). Each rank prints a line of JSON: for every check
"ok", or what it raised.
"""
import faulthandler
import json
import os
import sys
import traceback
import warnings

faulthandler.dump_traceback_later(int(os.environ.get("CHECKS_SECONDS", 170)), exit=True)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

torch.set_num_threads(1)
warnings.filterwarnings("ignore", message=".*(requires_grad=True to a scalar|Sparse invariant|find_unused_parameters).*")

import tulle  # noqa: E402
import tulle.torch  # noqa: E402

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DDP = nn.parallel.DistributedDataParallel
_checks = []


def check(function):
    _checks.append(function)
    return function


def run():
    dist.init_process_group("gloo")
    told = {}
    for function in _checks:
        try:
            function()
            told[function.__name__] = "ok"
        except BaseException:
            told[function.__name__] = traceback.format_exc()
            print(json.dumps(told), flush=True)
            os._exit(1)  # others must not wait for it
    print(json.dumps(told), flush=True)
    faulthandler.cancel_dump_traceback_later()
    sys.exit(0)


class Model(nn.Module):
    """Some of everything: an embedding, matrices that travel by a recipe, vectors, and a part that may be unused."""

    def __init__(self, sparse=False, width=160):
        super().__init__()
        self.words = nn.Embedding(50, 8, sparse=sparse)
        self.first = nn.Linear(8, width)
        self.second = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, 2)
        self.extra = nn.Linear(width, 2)

    def forward(self, words, uses_extra=True):
        hidden = self.first(self.words(words).sum(1)).relu()
        hidden = self.norm(self.second(hidden))
        return self.output(hidden) + (self.extra(hidden) if uses_extra else 0)


def made(seed=0, **arguments):
    torch.manual_seed(seed)
    return Model(**arguments)


def batch(step, rank=RANK, rows=4):
    generator = torch.Generator().manual_seed(100 * rank + step)
    return torch.randint(0, 50, (rows, 3), generator=generator), torch.randint(0, 2, (rows,), generator=generator)


def loss_of(model, step, *arguments, rows=4):
    words, labels = batch(step, rows=rows)
    return nn.functional.cross_entropy(model(words, *arguments).float(), labels)


def distance(one, other):
    """The largest difference between two models' weights."""
    pairs = zip(one.parameters(), other.parameters())
    return max(float((a.detach() - b.detach()).abs().max()) for a, b in pairs)


def same_on_all_ranks(model):
    weights = torch.cat([each.detach().float().view(-1) for each in model.parameters()])
    everyone = [torch.empty_like(weights) for _ in range(SIZE)]
    dist.all_gather(everyone, weights)
    return all(torch.equal(each, weights) for each in everyone)


def sum_over_ranks(tensor):
    tensor = tensor.clone()
    dist.all_reduce(tensor)
    return tensor
