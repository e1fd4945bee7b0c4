"""Which numpy arrays the library takes, and what to call where it does not."""
from __future__ import annotations

from typing import Any

import numpy as np

from . import _core

_DTYPE_OF_TYPE = {
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(np.uint16),  # numpy has none: its bits
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
}
_TYPE_OF_DTYPE = {dtype: name for name, dtype in _DTYPE_OF_TYPE.items() if name != "bf16"}


def dtype_of(type_name: str) -> np.dtype[Any]:
    """The dtype of arrays that hold values of a type."""
    return _DTYPE_OF_TYPE[type_name]


def require_array(array: Any, name: str = "array") -> np.ndarray:
    """The array itself. Raises TypeError for what is none, and says how to make one of it."""
    if isinstance(array, np.ndarray):
        return array
    if hasattr(array, "device") and hasattr(array, "detach"):
        raise TypeError(f"{name} is a torch tensor: pass {name}.detach().cpu().numpy(), which shares its memory on the CPU")
    if hasattr(array, "tocoo"):
        raise TypeError(f"{name} is a sparse matrix: pass tulle.Stream.from_scipy({name})")
    raise TypeError(f"{name} is of {type(array).__name__}, not a numpy array: call numpy.asarray({name})")


def require_contiguous(array: np.ndarray, name: str = "array") -> None:
    """Raises ValueError for memory that has holes, is not aligned or has another byte order."""
    if not array.dtype.isnative:
        raise ValueError(f"{name} has bytes in another order: call {name}.astype({name}.dtype.newbyteorder('='))")
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise ValueError(f"{name} is not C-contiguous: call numpy.ascontiguousarray({name})")


def require_writable(array: np.ndarray, name: str = "array") -> None:
    """Raises ValueError where the result could not be written to the array."""
    if not array.flags.writeable:
        raise ValueError(f"{name} is read-only: call {name}.copy()")


def type_of(array: np.ndarray, type_name: str | None = None, name: str = "array") -> str:
    """The value type of an array, checked against the one that the caller names. Raises TypeError with what to call."""
    if type_name is not None:
        dtype = _DTYPE_OF_TYPE.get(type_name)
        if dtype is None:
            raise ValueError(f"no type is called '{type_name}'; there are {', '.join(_DTYPE_OF_TYPE)}")
        if array.dtype != dtype:
            raise TypeError(f"{name} is of {array.dtype}, and {type_name} is {dtype}: call {name}.astype(numpy.{dtype})")
        return type_name
    found = _TYPE_OF_DTYPE.get(array.dtype.newbyteorder("="))
    if found is None:
        hint = "numpy.int64" if array.dtype.kind in "bui" else "numpy.float32"
        raise TypeError(
            f"{name} is of {array.dtype}; values are float32, float64, float16, int32 or int64, or uint16 with "
            f"type='bf16': call {name}.astype({hint})"
        )
    return found


def checked(array: Any, type_name: str | None = None, name: str = "array") -> tuple[np.ndarray, str]:
    """An array that the core can read, and its value type."""
    array = require_array(array, name)
    found = type_of(array, type_name, name)
    require_contiguous(array, name)
    return array, found


def numpy_view(memory: _core.Memory, dtype: Any) -> np.ndarray:
    """Memory of the library's as a read-only array, without a copy."""
    view = memoryview(memory)
    if view.nbytes == 0:
        empty = np.empty(0, dtype)
        empty.flags.writeable = False
        return empty
    return np.frombuffer(view, dtype)
