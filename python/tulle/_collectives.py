"""The collectives: blocking, and with an ``i`` in front as a request."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Generic, TypedDict, TypeVar, Union

import numpy as np

from . import _core
from ._arrays import checked, numpy_view, require_writable
from ._communicator import Communicator, communicator_of, finish
from ._stream import Stream

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
Data = Union[Stream, np.ndarray]


class Options(TypedDict, total=False):
    """What a call may be given. Equal on all ranks."""

    algorithm: str  #: a row of ``tulle.algorithms()``, auto, auto_sparse or auto_dense
    op: str  #: sum, prod, min, max, bit_and, bit_or, bit_xor
    density: float  #: expected share of non-zeros in one rank's stream; of top k: what to deliver
    index_coding: str  #: auto, smallest, or a row of ``tulle.codecs()``
    value_coding: str  #: "qsgd:bits=4": in fewer bits, for rows that do that
    coded_values: str  #: sums, contributions or both
    k: int  #: of top k: how many values to deliver
    residual: str  #: of top k: global, partial or local
    teams: int  #: spardl
    team_gather: str  #: spardl: auto, r_sag or b_sag
    threshold_period: int  #: oktopk
    region_period: int  #: oktopk
    seed: int  #: of stochastic rounding
    step: int  #: of training
    deadline: float  #: seconds; the communicator's default where not given
    checksum: bool  #: of every payload
    reproducible: bool  #: auto learns nothing from earlier calls


@dataclass(frozen=True)
class Outcome:
    """What a call did on this rank."""

    algorithm: str  #: the row that ran
    messages_sent: int
    messages_received: int
    bytes_sent: int  #: everything, headers included
    data_bytes_sent: int  #: indices and values alone
    data_bytes_received: int
    contributed: int  #: non-zeros of all contributions together; 0 where a row cannot know
    overflowed: int  #: results that no longer fit f16 or bf16 and became infinite
    select_seconds: float  #: of top k: of this rank's selections
    delivered: np.ndarray  #: of top k: the indices that the result has
    taken: Stream | None  #: of top k: what left this rank's array, as it was there before

    @staticmethod
    def _of(outcome: _core.Outcome) -> Outcome:
        width = np.uint32 if outcome.stream.index_width == 4 else np.uint64
        taken = Stream._wrap(outcome.taken) if outcome.taken.dimension > 0 else None
        return Outcome(
            algorithm=outcome.algorithm,
            contributed=outcome.contributed,
            overflowed=outcome.overflowed,
            select_seconds=outcome.select_seconds,
            delivered=numpy_view(outcome.delivered, width),
            taken=taken,
            **outcome.counts,
        )


class State:
    """What rows that select go on from in the next call (oktopk's thresholds, spardl's team sizes): one for each array.

    >>> import tulle
    >>> state = tulle.State()
    >>> tulle.State.load(state.save()).save() == state.save()
    True
    """

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = _core.AlgorithmState()

    def save(self) -> str:
        """The state as text."""
        return self._state.save()

    @staticmethod
    def load(text: str) -> State:
        """Reads what :meth:`save` gave, also on another number of ranks."""
        made = State()
        made._state = _core.AlgorithmState.load(text)
        return made


class Request(Generic[T]):
    """A call that was started. It keeps what it works on alive.

    Dropping it does not stop a call on streams, which the other ranks count on. One that works in place is ended, and
    the communicator is broken on all ranks: keep the request until it is over.

    >>> import numpy as np, tulle
    >>> def function(comm):
    ...     request = tulle.iallreduce(np.full(2, 1.0), comm=comm)
    ...     while not request.test():
    ...         pass  # compute something else
    ...     return request.wait()
    >>> tulle.threads(3, function)[0]
    array([3., 3.])
    """

    __slots__ = ("_call", "_make", "_result")

    def __init__(self, call: _core.Call, make: Callable[[_core.Outcome], T]) -> None:
        self._call: _core.Call | None = call
        self._make = make
        self._result: T | None = None

    def test(self) -> bool:
        """Makes some progress. True when :meth:`wait` would not wait."""
        return self._call is None or self._call.test()

    def wait(self) -> T:
        """The result, or the call's error as an exception. Ctrl-C ends the wait; the call goes on, and may be waited
        for again. A second call gives the same result."""
        if self._call is not None:
            outcome = self._call.wait()
            self._call = None
            self._result = self._make(outcome)
        return self._result  # type: ignore[return-value]


def _as_stream(outcome: _core.Outcome) -> Stream:
    return Stream._wrap(outcome.stream, Outcome._of(outcome))


def _start_stream(
    kind: str, data: Any, comm: Communicator, pace: str, type: str | None, options: Any
) -> Request[Any]:
    stream = data if isinstance(data, Stream) else Stream.dense(data, type=type)
    return Request(comm._group.start_stream(kind, stream._stream, pace, options), _as_stream)


def _start_allreduce(data: Any, comm: Communicator, pace: str, type: str | None, options: Any) -> Request[Any]:
    if isinstance(data, Stream):
        return _start_stream("allreduce", data, comm, pace, type, options)
    array, type_name = checked(data, type)
    require_writable(array)
    return Request(comm._group.start_in_place(type_name, array, pace, options), lambda _: array)


def _start_top_k(
    kind: str, array: Any, comm: Communicator, pace: str, state: State | None, options: Any
) -> Request[Stream]:
    array, type_name = checked(array)
    require_writable(array)
    if "k" not in options and "density" not in options:
        raise ValueError("top k wants k or density")
    kept = None if state is None else state._state
    return Request(comm._group.start_top_k(kind, type_name, array, pace, kept, options), _as_stream)


# ---------------------------------------------------------------- blocking


def allreduce(data: Data, *, comm: Any = None, type: str | None = None, **options: Unpack[Options]) -> Any:
    """The sum (or another op) of all ranks' data, the same bits on every rank.

    A :class:`Stream` gives a new one, and the numbers of non-zeros may differ between ranks. A dense array is replaced
    by the sum, in place, and given back. ``comm`` is a :class:`Communicator`, an mpi4py communicator, a torch process
    group, or None: the environment's.

    >>> import tulle
    >>> def function(comm):
    ...     mine = tulle.Stream([7, 1000 + comm.rank], [1.0, 0.5], dimension=1_000_000)
    ...     return tulle.allreduce(mine, comm=comm)
    >>> total = tulle.threads(4, function)[0]
    >>> total.nnz, float(total.values[0]), total.outcome.bytes_sent > 0
    (5, 4.0, True)
    """
    group = communicator_of(comm)
    return finish(group, _start_allreduce(data, group, "awaited", type, options).wait)


def allreduce_top_k(
    array: np.ndarray, *, comm: Any = None, state: State | None = None, **options: Unpack[Options]
) -> Stream:
    """Sums about the ``k`` largest values of all ranks' arrays, or a share ``density``, and takes them out.

    What is not delivered stays in the array for the next call, so that nothing is ever lost. The result is the same on
    all ranks; ``result.outcome.taken`` is what left this one. Rows: spardl, oktopk, gtopk, topka, topkdsa, auto.

    >>> import numpy as np, tulle
    >>> def function(comm):
    ...     gradient = np.array([0.25, 3.0, 0.5, 4.0])
    ...     return tulle.allreduce_top_k(gradient, k=2, comm=comm), gradient
    >>> update, left = tulle.threads(2, function)[0]
    >>> update.to_dense(), left
    (array([0., 6., 0., 8.]), array([0.25, 0.  , 0.5 , 0.  ]))
    """
    group = communicator_of(comm)
    return finish(group, _start_top_k("allreduce", array, group, "awaited", state, options).wait)


def reduce_scatter_top_k(
    array: np.ndarray, *, comm: Any = None, state: State | None = None, **options: Unpack[Options]
) -> Stream:
    """As :func:`allreduce_top_k`, but rank r gets only what lies in the r-th block: about k/P values.

    >>> import numpy as np, tulle
    >>> def function(comm):
    ...     return tulle.reduce_scatter_top_k(np.array([0.25, 3.0, 0.5, 4.0]), k=2, comm=comm)
    >>> [stream.range for stream in tulle.threads(2, function)]
    [(0, 2), (2, 4)]
    """
    group = communicator_of(comm)
    return finish(group, _start_top_k("reduce_scatter", array, group, "awaited", state, options).wait)


def _blocking(kind: str, data: Any, comm: Any, type: str | None, options: Any) -> Stream:
    group = communicator_of(comm)
    return finish(group, _start_stream(kind, data, group, "awaited", type, options).wait)


def allgather(data: Data, *, comm: Any = None, type: str | None = None, **options: Unpack[Options]) -> Stream:
    """The union of all ranks' streams; values of an index on several ranks are combined by the op, in rank order.

    >>> import tulle
    >>> tulle.threads(3, lambda comm: tulle.allgather(tulle.Stream([comm.rank], [1.0], 3), comm=comm))[0].to_dense()
    array([1., 1., 1.])
    """
    return _blocking("allgather", data, comm, type, options)


def reduce_scatter(data: Data, *, comm: Any = None, type: str | None = None, **options: Unpack[Options]) -> Stream:
    """Rank r gets the r-th of P blocks of the sum: a stream whose ``range`` is that block.

    >>> import numpy as np, tulle
    >>> tulle.threads(2, lambda comm: tulle.reduce_scatter(np.arange(4.0), comm=comm).to_dense())
    [array([0., 2.]), array([4., 6.])]
    """
    return _blocking("reduce_scatter", data, comm, type, options)


def reduce(data: Data, *, root: int = 0, comm: Any = None, type: str | None = None, **options: Unpack[Options]) -> Stream:
    """The sum arrives at ``root``; the others get an empty stream.

    >>> import numpy as np, tulle
    >>> tulle.threads(2, lambda comm: tulle.reduce(np.arange(1.0, 3.0), root=1, comm=comm).nnz)
    [0, 2]
    """
    return _blocking("reduce", data, comm, type, {**options, "root": root})


def broadcast(
    data: Data, *, root: int = 0, comm: Any = None, type: str | None = None, **options: Unpack[Options]
) -> Stream:
    """Everyone gets the stream of ``root``; of the others' only type and dimension matter.

    >>> import numpy as np, tulle
    >>> tulle.threads(2, lambda comm: tulle.broadcast(np.full(2, comm.rank + 5.0), comm=comm).to_dense())[1]
    array([5., 5.])
    """
    return _blocking("broadcast", data, comm, type, {**options, "root": root})


# ---------------------------------------------------------------- non-blocking


def iallreduce(data: Data, *, comm: Any = None, type: str | None = None, **options: Unpack[Options]) -> Request[Any]:
    """Starts :func:`allreduce`. Leave the array alone until the request is over, and keep the request.

    >>> import numpy as np, tulle
    >>> tulle.threads(2, lambda comm: tulle.iallreduce(np.ones(2), comm=comm).wait())[0]
    array([2., 2.])
    """
    return _start_allreduce(data, communicator_of(comm), "free", type, options)


def iallreduce_top_k(
    array: np.ndarray, *, comm: Any = None, state: State | None = None, **options: Unpack[Options]
) -> Request[Stream]:
    """Starts :func:`allreduce_top_k`. Leave the array alone until the request is over, and keep the request.

    >>> import numpy as np, tulle
    >>> tulle.threads(2, lambda comm: tulle.iallreduce_top_k(np.array([1.0, 2.0]), k=1, comm=comm).wait().indices)[0]
    array([1], dtype=uint32)
    """
    return _start_top_k("allreduce", array, communicator_of(comm), "free", state, options)


def iallgather(
    data: Data, *, comm: Any = None, type: str | None = None, **options: Unpack[Options]
) -> Request[Stream]:
    """Starts :func:`allgather`.

    >>> import tulle
    >>> tulle.threads(2, lambda comm: tulle.iallgather(tulle.Stream([comm.rank], [1.0], 2), comm=comm).wait().nnz)
    [2, 2]
    """
    return _start_stream("allgather", data, communicator_of(comm), "free", type, options)


def ireduce_scatter(
    data: Data, *, comm: Any = None, type: str | None = None, **options: Unpack[Options]
) -> Request[Stream]:
    """Starts :func:`reduce_scatter`.

    >>> import numpy as np, tulle
    >>> tulle.threads(2, lambda comm: tulle.ireduce_scatter(np.ones(4), comm=comm).wait().range)
    [(0, 2), (2, 4)]
    """
    return _start_stream("reduce_scatter", data, communicator_of(comm), "free", type, options)


def ireduce(
    data: Data, *, root: int = 0, comm: Any = None, type: str | None = None, **options: Unpack[Options]
) -> Request[Stream]:
    """Starts :func:`reduce`.

    >>> import numpy as np, tulle
    >>> tulle.threads(2, lambda comm: tulle.ireduce(np.ones(2), comm=comm).wait().nnz)
    [2, 0]
    """
    return _start_stream("reduce", data, communicator_of(comm), "free", type, {**options, "root": root})


def ibroadcast(
    data: Data, *, root: int = 0, comm: Any = None, type: str | None = None, **options: Unpack[Options]
) -> Request[Stream]:
    """Starts :func:`broadcast`.

    >>> import numpy as np, tulle
    >>> tulle.threads(2, lambda comm: tulle.ibroadcast(np.full(2, comm.rank), comm=comm).wait().to_dense())[1]
    array([0, 0])
    """
    return _start_stream("broadcast", data, communicator_of(comm), "free", type, {**options, "root": root})
