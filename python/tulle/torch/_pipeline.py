"""What register(), DistributedOptimizer and Local have in common: named parameters, their synchronizer, their state."""
from __future__ import annotations

import contextlib
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .._collectives import Request, broadcast, iallreduce
from .._communicator import Communicator, ranks_of
from .._errors import BadInputError, Error, class_of
from .._gradient import Recipe, Synchronizer
from .._stream import Stream
from ._all_reduce import rows_of, stream_of
from ._takeover import dicts_of
from ._tensors import Place, Stage, array_of, in_memory_order, require_whole, type_name

Named = Mapping[str, torch.nn.Parameter]
_GRADIENT_TYPES = ("f32", "f16", "bf16")
# Channels of the communicator for sums of sparse gradients; the synchronizer counts its own from 1.
_FIRST_SPARSE_CHANNEL = 1 << 20
_USED_CHANNEL = _FIRST_SPARSE_CHANNEL - 1

#: Steps between two comparisons of the weights: so that nobody can measure what a checksum of all of them takes.
WEIGHTS_CHECK_EVERY = 100
# Of a rank's error, as the others hear of it.
_STEP_ERROR_TEXT = "its step raised {}: {}"
_STEP_ERROR = re.compile(r"rank (\d+): " + _STEP_ERROR_TEXT.format(r"(\w+)", "(.*)"), re.DOTALL)
# Errors of the core on the rank that has them; on the others a peer has failed.
_DATA_ERROR = re.compile(r"rank (\d+) failed: rank \1: (.*(?:is not finite|is no longer finite|outgrew f32).*)", re.DOTALL)


def chosen(recipe: Recipe) -> Recipe:
    """TULLE_RECIPE of the environment, else what the script says."""
    return os.environ.get("TULLE_RECIPE") or recipe


def sparse_names(module: torch.nn.Module) -> set[str]:
    """The parameters of a module whose gradients are sparse tensors."""
    found = set()
    for prefix, each in module.named_modules():
        if isinstance(each, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and each.sparse:
            found.add(f"{prefix}.weight" if prefix else "weight")
    return found


def trained(named: Any) -> dict[str, torch.nn.Parameter]:
    """The parameters that get gradients, by name, each once. From a module or from rows of (name, parameter)."""
    rows = rows_of(named.named_parameters() if isinstance(named, torch.nn.Module) else named)
    by_name: dict[str, torch.nn.Parameter] = {}
    seen: set[int] = set()
    for name, parameter in rows:
        if parameter.requires_grad and id(parameter) not in seen:
            seen.add(id(parameter))
            by_name[name] = parameter
    return by_name


def synchronizer_rows(named: Named, roles: Mapping[str, str]) -> list[tuple[str, int, str, int]]:
    """What the core wants to know. The last matrix is the output layer, and vectors are biases or of norms."""
    if not isinstance(roles, Mapping):
        raise TypeError(f"roles are a {type(roles).__name__}: give a dict of parameters' names to roles")
    for name in roles.keys() - named.keys():
        names = ", ".join(named)
        raise ValueError(f"roles name '{name}', and no parameter that a recipe sends is called that; there are {names}")
    matrices = [name for name, parameter in named.items() if parameter.dim() > 1]
    rows = []
    for name, parameter in named.items():
        guess = "bias_or_norm" if parameter.dim() < 2 else "output" if name == matrices[-1] else "hidden"
        matrix_rows = parameter.shape[0] if parameter.dim() > 1 and parameter.numel() else 0
        rows.append((name, parameter.numel(), roles.get(name, guess), matrix_rows))
    return rows


def require_scaler(scaler: Any) -> None:
    """Raises TypeError for what has no scale."""
    if scaler is not None and not callable(getattr(scaler, "get_scale", None)):
        raise TypeError(f"scaler is a {type(scaler).__name__}: pass the GradScaler, or leave it out")


def require_types(named: Named) -> None:
    """Raises TypeError for parameters whose gradients the pipeline does not take."""
    for name, parameter in named.items():
        require_whole(name, parameter)
        if parameter.is_complex() or type_name(parameter) not in _GRADIENT_TYPES:
            raise TypeError(
                f"{name} is of {parameter.dtype}: gradients travel as float32, float16 or bfloat16; call model.float(), or "
                "sum the gradient with tulle.torch.all_reduce"
            )


class Pipeline:
    """A synchronizer of parameters that torch owns. Calls come from one thread at a time."""

    def __init__(
        self, named: Named, recipe: Recipe, comm: Communicator, roles: Mapping[str, str] | None, options: Any
    ) -> None:
        require_types(named)
        self.named = dict(named)
        self.comm = comm
        options = {"weights_check_every": WEIGHTS_CHECK_EVERY, **options}
        self.synchronizer = Synchronizer(synchronizer_rows(self.named, roles or {}), recipe, comm=self.comm, **options)
        self._require_same_order()
        self.number = {id(parameter): number for number, parameter in enumerate(self.named.values())}
        self._stages = [Stage() for _ in self.named]

    def _require_same_order(self) -> None:
        """Raises ValueError, on all ranks, where they have a parameter's values in different orders of memory, by which they
        are summed."""
        strides = [
            (name, [stride for stride, size in zip(each.stride(), each.shape) if size > 1])
            for name, each in self.named.items()
        ]
        mine = b"%d" % zlib.crc32(repr(strides).encode())
        if any(each != mine for each in self.comm.gather_bytes(mine)):
            raise ValueError("ranks have parameters in different memory formats: call model.to(memory_format=...) alike on all")

    def compare_weights(self, weights: Iterable[torch.Tensor]) -> None:
        """Where it is due in this step, starts to compare the parameters' weights with the other ranks'."""
        if self.synchronizer._core.wants_weights():
            self.synchronizer._core.compare_weights([array_of(in_memory_order(each).cpu()) for each in weights])

    def places(self, tensors: Mapping[int, torch.Tensor]) -> dict[int, Place]:
        """Where gradients are, by their parameters' numbers."""
        return {number: Place(tensor, self._stages[number]) for number, tensor in tensors.items()}

    def start(self, rows: list[tuple[int, Place, torch.Tensor | None]]) -> None:
        """Takes gradients: rows of (number, place, weights or None). What is at a place must stay as it is until
        :meth:`finish`: a recipe that changes nothing sends it from there. The core keeps the memory."""
        by_type: dict[str, list[Any]] = {}
        for number, place, weights in rows:
            decayed = None if weights is None else array_of(in_memory_order(weights).to("cpu", torch.float32))
            by_type.setdefault(place.type, []).append((number, place.source(), decayed))
        for name, given in by_type.items():
            self.synchronizer._core.start(name, given, "until_finished")

    def end_step(self) -> None:
        self.synchronizer._core.end_step()

    def finish(self, places: Mapping[int, Place]) -> None:
        """Waits for all updates and writes them to the places of their numbers; those of other numbers are dropped."""
        # In the order in which they came: while the last ones travel the first are written.
        targets = [(n, place.target) for n, place in places.items()]
        targets += [(n, None) for n in range(len(self.named)) if n not in places]
        self.synchronizer._core.finish_into(targets)
        for place in places.values():
            place.write()

    def start_sparse(self, place: int, gradient: torch.Tensor) -> Request[Stream]:
        """Starts the exact sum of a sparse gradient, which the synchronizer knows nothing of."""
        return iallreduce(stream_of(gradient), comm=self.comm.channel(_FIRST_SPARSE_CHANNEL + place))

    def start_used(self, used: Sequence[bool]) -> Request[Stream]:
        """Starts to count for each parameter how many ranks have a gradient."""
        return iallreduce(Stream.dense(np.array(used, np.int32)), comm=self.comm.channel(_USED_CHANNEL))

    def all_are(self, is_so: bool) -> bool:
        """Whether it is so on all ranks, all of which must ask."""
        return all(each == b"1" for each in self.comm.gather_bytes(b"1" if is_so else b"0"))

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Where what is inside raises, the other ranks raise the same class, instead of waiting for this one."""
        try:
            yield
        except Error as error:  # the others know
            told = _STEP_ERROR.search(str(error))
            if told is not None:
                rank, kind, text = told.groups()
                raise class_of(kind)(f"rank {rank}: {text}") from error
            refused = _DATA_ERROR.search(str(error))
            if refused is not None and not isinstance(error, BadInputError):
                raise BadInputError(f"rank {refused[1]}: {refused[2]}", error.rank, int(refused[1])) from error
            raise
        except BaseException as error:
            self.comm.abort(_STEP_ERROR_TEXT.format(type(error).__name__, error))
            raise

    # ------------------------------------------------------------ state

    def _capacity(self, state: np.ndarray) -> int:
        """How long the tensor of a state is: the same in every step, because torch.distributed.checkpoint loads in
        place; a description grows and shrinks with the digits of its numbers."""
        description = int(state[24:32].view(np.uint64)[0])
        room = 65536 + 4096 * len(self.named)
        return len(state) - description + max(description, room)

    def state_dict(self, all_ranks: bool = False) -> dict[str, Any]:
        """See Handle.state_dict()."""
        state = self.synchronizer.save_state()
        states = {self.comm.rank: state}
        if all_ranks:
            states = dict(enumerate(_all_states(self.comm, state)))
        made: dict[str, Any] = {"ranks": self.comm.size}
        for rank, each in states.items():
            tensor = torch.zeros(self._capacity(each), dtype=torch.uint8)
            tensor[: len(each)] = torch.from_numpy(np.array(each))
            made[f"state of rank {rank}"] = tensor
        return made

    def load_state_dict(self, state_dict: Any) -> None:
        """See Handle.load_state_dict()."""
        states: dict[int, np.ndarray] = {}
        saved = 0
        for each in dicts_of(state_dict):
            saved = max(saved, int(each.get("ranks", 0)))
            for key, tensor in each.items():
                if key.startswith("state of rank "):
                    states[int(key.rpartition(" ")[2])] = _state_in(tensor, key)
        if not states:
            raise ValueError("there is no state of a rank in it: give what state_dict() gave")
        is_own = saved == self.comm.size and self.comm.rank in states
        if len(states) < saved and not is_own:
            raise ValueError(
                f"it has the state of {ranks_of(sorted(states))} of {saved}, and rank {self.comm.rank} of {self.comm.size} "
                "needs its own or all: let every rank save its own, or call state_dict(all_ranks=True) on all; give "
                "accelerate's register_for_checkpointing() handle.of_all_ranks()"
            )
        self.synchronizer.load_state([states[rank] for rank in sorted(states)])


def _state_in(tensor: Any, key: str) -> np.ndarray:
    """The state without what fills its tensor up."""
    if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.uint8 or tensor.numel() < 32:
        raise ValueError(f"'{key}' is not the bytes that state_dict() gave: it is cut off or something else")
    array = tensor.cpu().contiguous().view(-1).numpy()
    return array[: int(array[16:24].view(np.uint64)[0])]


def _all_states(comm: Communicator, state: np.ndarray) -> list[np.ndarray]:
    """Every rank's state, on every rank: by broadcasts, because states are as large as the model."""
    lengths = [int(each) for each in comm.gather_bytes(b"%d" % len(state))]
    states = []
    for rank, length in enumerate(lengths):
        words = np.zeros((length + 3) // 4, np.int32)
        if rank == comm.rank:
            words.view(np.uint8)[:length] = state
        states.append(broadcast(words, root=rank, comm=comm).to_dense().view(np.uint8)[:length])
    return states
