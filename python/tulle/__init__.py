"""Sparse collectives for distributed machine learning, on numpy arrays.

>>> import numpy as np, tulle
>>> def function(comm):  # what each of four ranks does
...     mine = tulle.Stream([comm.rank], [1.0], dimension=8)
...     return tulle.allreduce(mine, comm=comm).to_dense()
>>> tulle.threads(4, function)[0]
array([1., 1., 1., 1., 0., 0., 0., 0.])

docs/python.md is the place to begin.
"""
from typing import Any

from ._codec import Coded, CodedIndices, codecs, decode, decode_indices, encode, encode_indices
from ._collectives import (
    Options,
    Outcome,
    Request,
    State,
    allgather,
    allreduce,
    allreduce_top_k,
    broadcast,
    iallgather,
    iallreduce,
    iallreduce_top_k,
    ibroadcast,
    ireduce,
    ireduce_scatter,
    reduce,
    reduce_scatter,
    reduce_scatter_top_k,
)
from ._communicator import Communicator, Door, Rendezvous, connect, join, threads
from ._core import version as __version__
from ._errors import (
    BadInputError,
    BadMessageError,
    BrokenError,
    DeadlineError,
    Error,
    ExcludedError,
    MismatchError,
    PeerFailedError,
    SystemError,
    UnsupportedError,
)
from ._gradient import (
    ElasticOptions,
    Synchronizer,
    SynchronizerOptions,
    Update,
    recipe_fields,
    recipe_text,
    recipes,
    run_elastic,
)
from ._select import Selection, accumulate_and_select, select, select_in_place, selectors
from ._stream import Stream
from ._tuning import algorithms, explain, networks, plan, simulate

__all__ = [
    "BadInputError", "BadMessageError", "BrokenError", "Coded", "CodedIndices", "Communicator", "DeadlineError", "Door",
    "ElasticOptions", "Error", "ExcludedError", "MismatchError", "Options", "Outcome", "PeerFailedError", "Rendezvous", "Request", "Selection",
    "State", "Stream", "Synchronizer", "SynchronizerOptions", "SystemError", "UnsupportedError", "Update",
    "__version__", "accumulate_and_select", "algorithms", "allgather", "allreduce", "allreduce_top_k",
    "broadcast", "codecs", "connect", "decode", "decode_indices", "encode", "encode_indices", "explain",
    "iallgather", "iallreduce", "iallreduce_top_k", "ibroadcast", "ireduce", "ireduce_scatter", "join", "networks",
    "plan", "recipe_fields", "recipe_text", "recipes", "reduce", "reduce_scatter", "reduce_scatter_top_k",
    "run_elastic", "select", "select_in_place", "selectors", "simulate", "threads",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """tulle.torch without an import of its own; torch is imported then, and not before."""
    if name == "torch":
        import importlib

        return importlib.import_module("tulle.torch")
    raise AttributeError(f"module 'tulle' has no attribute '{name}'")
