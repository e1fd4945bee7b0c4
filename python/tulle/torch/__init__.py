"""Tulle in PyTorch: gradients that travel by a recipe.

One line in a script with DistributedDataParallel::

    model = DistributedDataParallel(model)
    handle = tulle.torch.register(model, "topk:1%", optimizer=optimizer)

docs/pytorch.md is the place to begin. Any torch from 1.13 on will do: the compiled core knows nothing of it.
"""
from ._all_reduce import Work, all_reduce, broadcast_parameters
from ._ddp import Handle, register
from ._fsdp import FsdpHandle, fsdp_hook
from ._local import Local
from ._optimizer import DistributedOptimizer

__all__ = [
    "DistributedOptimizer", "FsdpHandle", "Handle", "Local", "Work", "all_reduce", "broadcast_parameters", "fsdp_hook",
    "register",
]  # fmt: skip
