"""Tensors as the core takes them: memory on the CPU without holes, through numpy. What is not so is staged."""
from __future__ import annotations

import numpy as np
import torch

#: The library's names of types.
TYPE_NAMES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int32: "i32",
    torch.int64: "i64",
}


def type_name(tensor: torch.Tensor) -> str:
    """The library's name for the values of a tensor. Raises TypeError where it has none."""
    found = TYPE_NAMES.get(tensor.dtype)
    if found is None:
        raise TypeError(f"tensors of {tensor.dtype} cannot be summed: convert them to one of {', '.join(map(str, TYPE_NAMES))}")
    return found


def require_whole(name: str, tensor: torch.Tensor) -> None:
    """Raises TypeError for a shard of a tensor that lies on several ranks."""
    if hasattr(tensor, "device_mesh") and hasattr(tensor, "placements"):
        raise TypeError(
            f"{name} is a DTensor, of which every rank has another part: use tulle.torch.fsdp_hook() for a model in "
            "fully_shard(), or give the tensor that to_local() gives with the group of the ranks that have the same part"
        )


def flat(tensor: torch.Tensor) -> torch.Tensor | None:
    """All values in the order of memory, sharing it; None where the memory has holes (a transposed one has none)."""
    tensor = tensor.detach()
    if tensor.is_contiguous():
        return tensor.view(-1)
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    ordered = tensor.permute(order)
    return ordered.reshape(-1) if ordered.is_contiguous() else None


def in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
    """All values in the order of memory, or row by row where that has holes."""
    own = flat(tensor)
    return own if own is not None else tensor.detach().reshape(-1)


def ordered_as(gradient: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """The gradient, or a copy of it where its memory is in another order than the parameter's: ranks sum in the order of
    memory, and only parameters have the same on all of them."""
    if gradient.stride() == parameter.stride():
        return gradient
    if flat(parameter) is None:
        return gradient.contiguous()
    return torch.empty_like(parameter, dtype=gradient.dtype, requires_grad=False).copy_(gradient)


def array_of(values: torch.Tensor) -> np.ndarray:
    """A flat tensor of the CPU as an array that shares its memory; bfloat16, which numpy has not, as its bits."""
    if values.dtype == torch.bfloat16:
        return values.view(torch.int16).numpy().view(np.uint16)
    return values.numpy()


class Stage:
    """Memory on the CPU beside one tensor that is elsewhere or has another type: made once, used in every step.

    Memory is pinned where tensors are on a GPU, so that copies run at the speed of the bus.
    """

    def __init__(self) -> None:
        self._made: dict[torch.dtype, torch.Tensor] = {}

    def memory(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Flat memory for the values of the tensor in a type."""
        made = self._made.get(dtype)
        if made is None or made.numel() != tensor.numel():
            made = torch.empty(tensor.numel(), dtype=dtype, pin_memory=tensor.is_cuda)
            self._made[dtype] = made
        return made

    def read(self, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The values row by row and on the CPU: the tensor's own memory where that will do. Other ranks' tensors may
        have theirs in another order."""
        dtype = dtype or tensor.dtype
        tensor = tensor.detach()
        if tensor.is_contiguous() and tensor.device.type == "cpu" and tensor.dtype == dtype:
            return tensor.view(-1)
        memory = self.memory(tensor, dtype)
        memory.copy_(tensor.reshape(-1))
        return memory

    def write(self, tensor: torch.Tensor, values: torch.Tensor) -> None:
        """Copies what :meth:`read` gave back to the tensor, unless that is its own memory."""
        if tensor.data_ptr() != values.data_ptr():
            tensor.detach().copy_(values.view(tensor.shape))


class Place:
    """A gradient as the core reads it and where the core writes its update, in float32: the tensor's own memory, or a
    stage beside it. Making one takes longer than all else that a step does for a small parameter in Python, so that
    whoever is given the same tensor in every step keeps it."""

    def __init__(self, tensor: torch.Tensor, stage: Stage) -> None:
        own = flat(tensor)
        if own is not None and own.device.type != "cpu":
            own = None
        self.tensor, self.type = tensor, type_name(tensor)
        self._from = own if own is not None else stage.memory(tensor, tensor.dtype)
        self._to = own if own is not None and self.type == "f32" else stage.memory(tensor, torch.float32)
        self._is_read_from_stage, self._is_written_to_stage = self._from is not own, self._to is not own
        self._source, self.target = array_of(self._from), array_of(self._to)

    def source(self) -> np.ndarray:
        """The values that the tensor has now."""
        if self._is_read_from_stage:
            _copy(self.tensor, self._from)
        return self._source

    def write(self) -> None:
        """Brings what was written to the target to the tensor."""
        if not self._is_written_to_stage:
            return
        own = flat(self.tensor)
        if own is not None:
            own.copy_(self._to)
        else:
            self.tensor.detach().copy_(self._to.view(self.tensor.shape))


def _copy(tensor: torch.Tensor, memory: torch.Tensor) -> None:
    memory.copy_(in_memory_order(tensor))
