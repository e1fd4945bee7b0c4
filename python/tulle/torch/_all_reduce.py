"""Sums of tensors: dense ones in place, sparse ones without a value lost."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed

from .._collectives import Options, Request, broadcast, iallreduce
from .._communicator import Communicator, communicator_of
from .._stream import Stream
from ._tensors import TYPE_NAMES, Stage, array_of, require_whole, type_name

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Indices of a stream are right; from torch 2 on one is asked whether they shall be looked at.
_CHECKS = {"check_invariants": False} if hasattr(torch.sparse, "check_sparse_tensor_invariants") else {}


def communicator_for(group: Any, deadline: float | None = None) -> Communicator:
    """Of a process group, of torch's default group, or where torch has none, of the environment. Ranks of a process group
    that are not connected yet wait ``deadline`` seconds for each other."""
    if group is None and torch.distributed.is_available() and torch.distributed.is_initialized():
        group = torch.distributed.group.WORLD
    if torch.distributed.is_available() and group == torch.distributed.GroupMember.NON_GROUP_MEMBER:
        raise ValueError(f"rank {torch.distributed.get_rank()} is not in the process group: call this on its ranks alone")
    return communicator_of(group, deadline)


class Work:
    """A sum that was started: :meth:`wait` writes it to the tensor and gives that."""

    def __init__(self, request: Request[Any], tensor: torch.Tensor, write: Any) -> None:
        self._request, self._tensor, self._write = request, tensor, write
        self._is_written = False

    def is_completed(self) -> bool:
        """True when :meth:`wait` would not wait."""
        return self._request.test()

    def wait(self) -> torch.Tensor:
        """Waits for the sum. Raises :class:`tulle.Error` where it failed."""
        result = self._request.wait()
        if not self._is_written:
            self._is_written = True
            self._write(result)
        return self._tensor


def all_reduce(tensor: torch.Tensor, group: Any = None, async_op: bool = False, **options: Unpack[Options]) -> Any:
    """The sum of all ranks' tensors, in place: of dense ones, and of sparse COO ones, whose numbers of values may
    differ between ranks, down to none. Takes the options of :func:`tulle.allreduce`.

    ``group`` is a process group of torch's, used once so that ranks find each other; None is the default group. With
    ``async_op`` it gives a :class:`Work` at once; keep it, and wait for it before the tensor is used. A thread of the
    library's goes on with it meanwhile.

    >>> import torch, tulle
    >>> def function(comm):
    ...     mine = torch.sparse_coo_tensor([[comm.rank, 2]], [1.0, 0.5], (4,))
    ...     return tulle.torch.all_reduce(mine, group=comm).to_dense()
    >>> tulle.threads(2, function)[0]
    tensor([1., 1., 1., 0.])
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"a {type(tensor).__name__} is no tensor: call torch.as_tensor(), or tulle.allreduce() for arrays")
    require_whole("the tensor", tensor)
    if not isinstance(options.get("op", ""), str):
        raise TypeError(f"op is {options['op']}: give its name, as op='max'")
    comm = communicator_for(group)
    if async_op and comm.transport != "threads":
        comm.start_progress_thread()
    start = _start_sparse if tensor.layout == torch.sparse_coo else _start_dense
    work = start(tensor, comm, options)
    return work if async_op else work.wait()


def _start_dense(tensor: torch.Tensor, comm: Communicator, options: Any) -> Work:
    if tensor.layout != torch.strided:
        raise TypeError(f"a tensor of {tensor.layout} cannot be summed: call tensor.to_sparse_coo() or tensor.to_dense()")
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape)):
        raise ValueError("the tensor is expanded, so that values share memory: call tensor.contiguous()")
    stage = Stage()
    values = stage.read(tensor)
    request = iallreduce(array_of(values), comm=comm, type=type_name(tensor), **options)
    return Work(request, tensor, lambda _: stage.write(tensor, values))


def _start_sparse(tensor: torch.Tensor, comm: Communicator, options: Any) -> Work:
    request = iallreduce(stream_of(tensor), comm=comm, **options)
    return Work(request, tensor, lambda stream: replace(tensor, like(tensor, stream)))


@torch.no_grad()
def replace(tensor: torch.Tensor, by: torch.Tensor) -> None:
    """Gives a sparse tensor the indices and values of another. Its old memory, which may still be on its way to other
    ranks, is left as it is."""
    tensor.copy_(by)


def _flat_indices(tensor: torch.Tensor) -> torch.Tensor:
    """Where the values of a sparse tensor lie when all its elements are counted row by row."""
    shape = tensor.shape[: tensor.sparse_dim()]
    indices = tensor._indices().cpu()
    places = indices[0]
    for dimension in range(1, len(shape)):
        places = places * shape[dimension] + indices[dimension]
    width = int(np.prod(tensor.shape[tensor.sparse_dim() :], dtype=np.int64))
    if width == 1:
        return places
    return (places[:, None] * width + torch.arange(width)).view(-1)


def stream_of(tensor: torch.Tensor) -> Stream:
    """A sparse COO tensor as a stream. Values that occur several times are summed."""
    if tensor.sparse_dim() == 0 or 0 in tensor.shape[tensor.sparse_dim() :]:
        what = f"of shape {tuple(tensor.shape)} with {tensor.sparse_dim()} sparse dimensions"
        raise ValueError(f"a sparse tensor {what} cannot be summed: call tensor.to_dense()")
    values = tensor.detach()._values().cpu().contiguous().view(-1)
    dimension = int(np.prod(tensor.shape, dtype=np.int64))
    if values.numel() == 0:
        return Stream.empty(dimension, type=type_name(tensor))
    return Stream(_flat_indices(tensor).numpy(), array_of(values), dimension, type=type_name(tensor))


def like(tensor: torch.Tensor, stream: Stream, divisor: int = 1) -> torch.Tensor:
    """A sparse tensor of the shape of another with the values of a stream, divided."""
    stream = stream.to_sparse()
    places = torch.from_numpy(stream.indices.astype(np.int64))
    values = torch.from_numpy(np.array(stream.values.view(np.int16) if stream.type == "bf16" else stream.values))
    if stream.type == "bf16":
        values = values.view(torch.bfloat16)
    if divisor != 1:
        values = values / divisor
    shape, sparse_dim = tensor.shape, tensor.sparse_dim()
    width = int(np.prod(shape[sparse_dim:], dtype=np.int64))
    if sparse_dim < len(shape):
        places, values = _rows_of(places, values, width)
        values = values.view(-1, *shape[sparse_dim:])
    indices = torch.empty(sparse_dim, places.numel(), dtype=torch.int64)
    for dimension in range(sparse_dim - 1, -1, -1):
        indices[dimension] = places % shape[dimension] if dimension else places
        places = torch.div(places, shape[dimension], rounding_mode="floor")
    made = torch.sparse_coo_tensor(indices, values, shape, device=tensor.device, **_CHECKS)
    return made._coalesced_(True)


def infinite(tensor: torch.Tensor) -> torch.Tensor:
    """A sparse tensor of the shape of another with one row, of infinities: what a scaler finds on ranks without values."""
    indices = torch.zeros(tensor.sparse_dim(), 1, dtype=torch.int64)
    values = torch.full((1, *tensor.shape[tensor.sparse_dim() :]), float("inf"), dtype=tensor.dtype)
    return torch.sparse_coo_tensor(indices, values, tensor.shape, device=tensor.device, **_CHECKS)._coalesced_(True)


def _rows_of(places: torch.Tensor, values: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows that have a value, increasing, and all values of each."""
    rows, row_of_value = torch.unique_consecutive(torch.div(places, width, rounding_mode="floor"), return_inverse=True)
    filled = torch.zeros(rows.numel() * width, dtype=values.dtype)
    filled[row_of_value * width + places % width] = values
    return rows, filled.view(-1, width)


def broadcast_parameters(named: Any, root: int = 0, group: Any = None) -> None:
    """Gives all ranks the parameters and buffers of ``root``: of a module, or of rows of (name, tensor).

    >>> import torch, tulle
    >>> def function(comm):
    ...     layer = torch.nn.Linear(1, 1)
    ...     torch.nn.init.constant_(layer.weight, comm.rank + 5.0)
    ...     tulle.torch.broadcast_parameters(layer, group=comm)
    ...     return layer.weight.item()
    >>> tulle.threads(2, function)
    [5.0, 5.0]
    """
    comm = communicator_for(group)
    for name, tensor in rows_of(named.state_dict(keep_vars=True) if isinstance(named, torch.nn.Module) else named):
        if not isinstance(tensor, torch.Tensor) or tensor.numel() == 0:
            continue
        require_whole(name, tensor)
        if tensor.layout != torch.strided:
            raise TypeError(f"{name} is of {tensor.layout}, which is not broadcast: call to_dense()")
        values = tensor.detach().cpu().contiguous().view(-1)
        own = values if values.dtype in TYPE_NAMES else _words_of(values)
        # A copy: on threads other ranks may still look at it when this one goes on and changes its weights.
        given = broadcast(array_of(own).copy(), root=root, comm=comm, type=type_name(own))
        given.to_dense(array_of(own))
        if own is not values:
            values = own.view(torch.uint8)[: values.numel() * values.element_size()].view(values.dtype)
        tensor.detach().copy_(values.view(tensor.shape))


def _words_of(values: torch.Tensor) -> torch.Tensor:
    """The bytes of values of whatever type, complex or boolean, as numbers that travel."""
    if values.is_complex():
        values = values.resolve_conj()
    data = values.view(torch.uint8)
    words = torch.zeros((data.numel() + 3) // 4, dtype=torch.int32)
    words.view(torch.uint8)[: data.numel()] = data
    return words


def rows_of(named: Any) -> Iterable[tuple[str, Any]]:
    """Rows of (name, value), from a mapping or rows. Raises TypeError for what has no names."""
    rows = list(named.items() if isinstance(named, Mapping) else named)
    for row in rows:
        if not (isinstance(row, (tuple, list)) and len(row) == 2 and isinstance(row[0], str)):
            raise TypeError(f"a {type(row).__name__} has no name: pass the module, or model.named_parameters()")
    return rows
