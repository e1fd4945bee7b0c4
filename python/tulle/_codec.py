"""Values and indices in fewer bits."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _core
from ._arrays import checked, dtype_of, numpy_view
from ._stream import Stream


@dataclass(frozen=True)
class Coded:
    """Values as a coding leaves them, and what decoding needs to know."""

    data: bytes
    codec: str
    type: str
    count: int


@dataclass(frozen=True)
class CodedIndices:
    """Indices of a stream as a coding leaves them."""

    data: bytes
    coding: str
    dimension: int
    nnz: int


def encode(
    array: np.ndarray, codec: str, *, seed: int = 0, rank: int = 0, step: int = 0, threads: int = 1, type: str | None = None
) -> Coded:
    """Codes values: "qsgd:bits=4,bucket=512", "three_lc:s=1.75", "f16", ... ``tulle.codecs()`` lists them.

    Stochastic rounding draws from seed, rank and step: the same ones give the same bytes.

    >>> import numpy as np, tulle
    >>> coded = tulle.encode(np.array([1.0, 2.5], np.float32), "f16")
    >>> len(coded.data), tulle.decode(coded)
    (4, array([1. , 2.5], dtype=float32))
    """
    array, type_name = checked(array, type)
    return Coded(bytes(_core.encode(codec, type_name, array, seed, rank, step, threads)), codec, type_name, array.size)


def decode(coded: Coded, *, threads: int = 1) -> np.ndarray:
    """The values. Trusts nothing: raises BadMessageError for bytes that are no such coding.

    >>> import numpy as np, tulle
    >>> tulle.decode(tulle.encode(np.array([0.5, -4.0], np.float32), "int8")).round(1)
    array([ 0.5, -4. ], dtype=float32)
    """
    memory = _core.decode(coded.codec, coded.type, coded.data, coded.count, threads)
    return numpy_view(memory, dtype_of(coded.type))


def encode_indices(stream: Stream, coding: str = "smallest") -> CodedIndices:
    """Codes the indices of a stream: raw, delta_vbyte, bitmap, rice, or the smallest of them. Exact.

    >>> import tulle
    >>> coded = tulle.encode_indices(tulle.Stream([2, 3, 5], [1.0, 1.0, 1.0], dimension=8), "bitmap")
    >>> coded.data.hex(), tulle.decode_indices(coded)
    ('2c', array([2, 3, 5], dtype=uint32))
    """
    chosen, memory = _core.encode_indices(stream._stream, coding)
    return CodedIndices(bytes(memory), chosen, stream.dimension, stream.to_sparse().nnz)


def decode_indices(coded: CodedIndices) -> np.ndarray:
    """The indices. Trusts nothing, as :func:`decode`.

    >>> import tulle
    >>> tulle.decode_indices(tulle.encode_indices(tulle.Stream([1, 6], [1.0, 1.0], dimension=8)))
    array([1, 6], dtype=uint32)
    """
    memory = _core.decode_indices(coded.coding, coded.data, coded.dimension, coded.nnz)
    return numpy_view(memory, np.uint32 if coded.dimension < 2**32 else np.uint64)


def codecs() -> list[dict[str, Any]]:
    """All codings, of indices and of values.

    >>> import tulle
    >>> [row["name"] for row in tulle.codecs() if row["codes"] == "indices"]
    ['raw', 'bitmap', 'delta_vbyte', 'rice']
    """
    return _core.codecs()
