"""Sparse streams."""
from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from ._arrays import checked, dtype_of, numpy_view, require_array, require_writable
from ._errors import BadInputError

if TYPE_CHECKING:
    from ._collectives import Outcome


def _indices_for(indices: Any, dimension: int) -> np.ndarray:
    """Indices as wide as a stream of that dimension has them: the same memory where they are."""
    array = np.asarray(indices)
    if array.size == 0:
        array = array.astype(np.uint32)
    if array.dtype.kind not in "ui":
        raise TypeError(f"indices are of {array.dtype}, not integers: call indices.astype(numpy.int64)")
    width = 4 if dimension < 2**32 else 8
    if array.dtype.itemsize == width and array.dtype.isnative:
        # A negative index becomes a huge one, which the core refuses.
        return np.ascontiguousarray(array).view(np.uint32 if width == 4 else np.uint64)
    if array.dtype.kind == "i" and array.min(initial=0) < 0 or array.max(initial=0) >= max(dimension, 1):
        wrong = int(np.flatnonzero((array < 0) | (array >= dimension))[0])
        raise BadInputError(
            f"position {wrong}: index {array.flat[wrong]} is outside [0, {dimension}) of a stream with N = {dimension}"
        )
    return np.ascontiguousarray(array, np.uint32 if width == 4 else np.uint64)


def _checked_dimension(dimension: Any) -> int:
    """Raises TypeError or BadInputError for what no stream has."""
    try:
        checked_one = operator.index(dimension)
    except TypeError:
        raise TypeError(f"dimension is {dimension!r}: give a whole number, as int(dimension)") from None
    if not 0 <= checked_one < 2**64:
        raise BadInputError(f"dimension is {checked_one}, expected 0 or more and less than 2**64")
    return checked_one


class Stream:
    """A vector of N values of which only some are stored: indices, strictly increasing, and as many values.

    Made from indices and values, in any order; values of the same index are summed. Arrays that are sorted already and
    whose indices are 32 bits wide (64 from N = 2**32 on) are shared, not copied: leave them alone while the stream
    lives, or pass copies.

    >>> import tulle
    >>> stream = tulle.Stream([7, 2, 7], [1.0, 0.5, 2.0], dimension=10)
    >>> stream
    Stream(f64, N = 10, 2 stored)
    >>> stream.indices, stream.values
    (array([2, 7], dtype=uint32), array([0.5, 3. ]))
    """

    __slots__ = ("_stream", "outcome")

    #: What the call did that gave this stream; None where no call did.
    outcome: Outcome | None

    def __init__(self, indices: Any, values: Any, dimension: int, *, type: str | None = None, op: str = "sum") -> None:
        dimension = _checked_dimension(dimension)
        values, type_name = checked(np.asarray(values), type, "values")
        self._stream = _core.AnyStream.sparse(type_name, dimension, _indices_for(indices, dimension), values, op)
        self.outcome = None

    @classmethod
    def _wrap(cls, stream: _core.AnyStream, outcome: Outcome | None = None) -> Stream:
        made = cls.__new__(cls)
        made._stream = stream
        made.outcome = outcome
        return made

    @classmethod
    def from_dense(cls, array: np.ndarray, *, type: str | None = None, op: str = "sum") -> Stream:
        """The values of an array that are not the op's neutral element, 0 for sum. Copies them.

        >>> import numpy as np, tulle
        >>> tulle.Stream.from_dense(np.array([0, 5, 0, 6])).indices
        array([1, 3], dtype=uint32)
        """
        array, type_name = checked(array, type)
        return cls._wrap(_core.AnyStream.non_zeros(type_name, array, op))

    @classmethod
    def dense(cls, array: np.ndarray, *, type: str | None = None) -> Stream:
        """All values of an array, whose memory is shared: leave it alone while the stream lives.

        >>> import numpy as np, tulle
        >>> tulle.Stream.dense(np.zeros(4, np.float32))
        Stream(f32, N = 4, dense)
        """
        array, type_name = checked(array, type)
        return cls._wrap(_core.AnyStream.dense(type_name, array))

    @classmethod
    def empty(cls, dimension: int, *, type: str = "f32") -> Stream:
        """No non-zeros among ``dimension`` values.

        >>> import tulle
        >>> tulle.Stream.empty(10).nnz
        0
        """
        return cls._wrap(_core.AnyStream.empty(type, _checked_dimension(dimension)))

    @classmethod
    def from_scipy(cls, matrix: Any) -> Stream:
        """A matrix or array of scipy.sparse, row by row: element (i, j) has index i · columns + j.

        A CSR matrix of one row with sorted indices is shared, not copied.

        >>> import scipy.sparse, tulle
        >>> stream = tulle.Stream.from_scipy(scipy.sparse.csr_matrix([[0, 1.5], [2.5, 0]]))
        >>> stream.indices, stream.values
        (array([1, 2], dtype=uint32), array([1.5, 2.5]))
        """
        if not hasattr(matrix, "tocoo"):
            raise TypeError(f"a {type(matrix).__name__} is not of scipy.sparse: pass it to Stream.from_dense()")
        dimension = int(np.prod(matrix.shape, dtype=np.int64))
        if matrix.format == "csr" and matrix.shape[0] == 1:
            return cls(matrix.indices, matrix.data, dimension)
        entries = matrix.tocoo()
        columns = matrix.shape[-1]
        indices = entries.row.astype(np.int64) * columns + entries.col
        return cls(indices, entries.data, dimension)

    def to_scipy(self, shape: tuple[int, int] | None = None) -> Any:
        """The stream as a scipy.sparse CSR matrix of a shape with N elements; one row where none is given.

        >>> import tulle
        >>> tulle.Stream([1, 2], [1.5, 2.5], dimension=4).to_scipy((2, 2)).toarray()
        array([[0. , 1.5],
               [2.5, 0. ]])
        """
        import scipy.sparse

        rows, columns = shape or (1, self.dimension)
        if rows * columns != self.dimension:
            raise ValueError(f"shape {rows} × {columns} does not have N = {self.dimension} elements")
        sparse = self.to_sparse()
        indices = sparse.indices.astype(np.int64)
        return scipy.sparse.csr_matrix((sparse.values, (indices // columns, indices % columns)), shape=(rows, columns))

    @property
    def type(self) -> str:
        """The value type: f32, f64, f16, bf16, i32 or i64."""
        return self._stream.type

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of ``values``. bf16 is shown as the bits of it, uint16."""
        return dtype_of(self._stream.type)

    @property
    def dimension(self) -> int:
        """N."""
        return self._stream.dimension

    @property
    def range(self) -> tuple[int, int]:
        """Begin and end of the positions that the stream covers: (0, N), or a block of them after reduce_scatter."""
        return self._stream.range

    @property
    def nnz(self) -> int:
        """How many values are stored; the size of the range where the stream is dense."""
        return self._stream.nnz

    @property
    def is_dense(self) -> bool:
        """Whether all values of the range are stored, without indices."""
        return self._stream.is_dense

    @property
    def indices(self) -> np.ndarray:
        """Positions of the values in [0, N), strictly increasing. Of a sparse stream a read-only view, no copy."""
        begin, end = self.range
        if self.is_dense:
            return np.arange(begin, end, dtype=np.uint32 if self._stream.index_width == 4 else np.uint64)
        return numpy_view(self._stream.indices(), np.uint32 if self._stream.index_width == 4 else np.uint64)

    @property
    def values(self) -> np.ndarray:
        """The values that are stored: a read-only view, no copy."""
        return numpy_view(self._stream.values(), self.dtype)

    def to_dense(self, out: np.ndarray | None = None, *, op: str = "sum") -> np.ndarray:
        """All values of the range, the op's neutral element where none is stored. Writes to ``out`` where given.

        >>> import tulle
        >>> tulle.Stream([1], [2.5], dimension=3).to_dense()
        array([0. , 2.5, 0. ])
        """
        begin, end = self.range
        if out is None:
            out = np.empty(end - begin, self.dtype)
        out, _ = checked(require_array(out, "out"), self.type, "out")
        require_writable(out, "out")
        self._stream.write_dense(out, op)
        return out

    def to_sparse(self, *, op: str = "sum") -> Stream:
        """The same without what is the op's neutral element; itself where it is sparse.

        >>> import numpy as np, tulle
        >>> tulle.Stream.dense(np.array([0.0, 5.0])).to_sparse()
        Stream(f64, N = 2, 1 stored)
        """
        return Stream._wrap(self._stream.to_sparse(op), self.outcome) if self.is_dense else self

    def __len__(self) -> int:
        return self.dimension

    def __eq__(self, other: object) -> bool:
        """Same type, dimension, range, layout, indices and bits of the values."""
        return isinstance(other, Stream) and self._stream.equals(other._stream)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        begin, end = self.range
        block = "" if (begin, end) == (0, self.dimension) else f" [{begin}, {end})"
        return f"Stream({self.type}, N = {self.dimension}{block}, {'dense' if self.is_dense else f'{self.nnz} stored'})"
