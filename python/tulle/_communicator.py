"""Groups of ranks: how a process becomes one of them."""
from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any, Callable, Protocol, TypeVar

from . import _core
from ._errors import DeadlineError, Error, PeerFailedError, SystemError

T = TypeVar("T")


class Rendezvous(Protocol):
    """What ranks that do not know each other meet by: an exchange of a few hundred bytes that a job already has."""

    rank: int
    size: int

    def allgather(self, mine: bytes) -> list[bytes]:
        """Gives every rank what each rank passed, by rank."""


_alive: weakref.WeakSet[Communicator] = weakref.WeakSet()


class Communicator:
    """A group of ranks that call collectives together. Made by :func:`connect` or :func:`threads`.

    All ranks must make the same calls in the same order. Any thread may call, one at a time; calls that ranks make in
    different orders, or on several threads at once, get a :meth:`channel` each.
    """

    __slots__ = ("_group", "__weakref__")

    def __init__(self, group: _core.Group) -> None:
        self._group = group
        _alive.add(self)

    @property
    def rank(self) -> int:
        """This process's number, from 0."""
        return self._group.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._group.size

    @property
    def nodes(self) -> list[int]:
        """The node of each rank: ranks with equal numbers share memory."""
        return self._group.nodes

    @property
    def transport(self) -> str:
        """How messages travel: tcp or threads."""
        return self._group.transport()

    def set_default_deadline(self, seconds: float) -> None:
        """How long a call may take where it does not say: 300 s until set.

        >>> import tulle
        >>> tulle.threads(2, lambda comm: comm.set_default_deadline(30))
        [None, None]
        """
        self._group.set_default_deadline(_seconds(seconds))

    def channel(self, number: int) -> Communicator:
        """The same ranks with an order of calls of its own, made without messages.

        >>> import tulle
        >>> tulle.threads(2, lambda comm: comm.channel(3).size)
        [2, 2]
        """
        return Communicator(self._group.channel(number))

    def split(self, color: int, key: int = 0) -> Communicator:
        """The ranks that give the same color, ordered by key and then by rank. All ranks must call it.

        >>> import tulle
        >>> tulle.threads(4, lambda comm: comm.split(comm.rank % 2).rank)
        [0, 0, 1, 1]
        """
        return Communicator(finish(self, lambda: self._group.split(color, key)))

    def barrier(self) -> None:
        """Returns when all ranks have called it.

        >>> import tulle
        >>> tulle.threads(2, lambda comm: comm.barrier())
        [None, None]
        """
        finish(self, self._group.barrier)

    def gather_bytes(self, mine: bytes) -> list[bytes]:
        """What every rank gives, by rank: for kilobytes.

        >>> import tulle
        >>> tulle.threads(2, lambda comm: comm.gather_bytes(b"rank %d" % comm.rank))[0]
        [b'rank 0', b'rank 1']
        """
        return finish(self, lambda: self._group.gather_bytes(mine))

    def load_profile(self, path: str) -> None:
        """Gives all ranks the profile that rank 0 reads from a file of ``tulle probe``. All ranks must call it.

        >>> import tulle
        >>> tulle.connect().load_profile("profile.json")  # doctest: +SKIP
        """
        self._group.load_profile(os.fspath(path))

    @contextlib.contextmanager
    def _within(self, deadline: float | None) -> Iterator[None]:
        """Inside, calls that do not say have this deadline. None leaves it as it is."""
        before = self._group.default_deadline()
        if deadline is not None:
            self._group.set_default_deadline(deadline)
        try:
            yield
        finally:
            self._group.set_default_deadline(before)

    def start_progress_thread(self) -> None:
        """Lets a thread of the library's go on with what is in flight while this one computes.

        >>> import tulle
        >>> tulle.threads(2, lambda comm: comm.start_progress_thread())
        [None, None]
        """
        self._group.start_progress_thread()

    def admit(
        self, door: Door | None = None, *, interface: str = "", ports: str = "", deadline: float = 60
    ) -> Communicator:
        """Lets in who waits at the door, which rank 0 has. All ranks must call it, with nothing in flight. Gives a new
        communicator, in which this group's ranks keep their numbers and newcomers follow; this one where nobody waits.

        >>> import threading, tulle
        >>> comm, door = tulle.connect("127.0.0.1:0", rank=0, size=1), tulle.Door("127.0.0.1")
        >>> newcomer = threading.Thread(target=lambda: tulle.join(f"127.0.0.1:{door.port}").barrier())
        >>> newcomer.start()
        >>> while comm.size < 2:  # between two steps of a training
        ...     comm = comm.admit(door)
        >>> comm.barrier()
        >>> newcomer.join()
        >>> comm
        Communicator(rank 0 of 2, tcp)
        """
        core = door._door if door is not None else None
        return Communicator(finish(self, lambda: self._group.admit(core, interface, ports, _seconds(deadline))))

    def abort(self, reason: str = "a rank gave up") -> None:
        """Breaks the communicator on all ranks: what is in flight fails there with the reason, and so do later calls.

        >>> import tulle
        >>> def function(comm):
        ...     if comm.rank == 1:
        ...         comm.abort("no more data")
        ...         return "gave up"
        ...     try:
        ...         comm.barrier()
        ...     except tulle.PeerFailedError as error:
        ...         return error.peer
        >>> tulle.threads(2, function)
        [1, 'gave up']
        """
        self._group.abort(reason)

    def close(self) -> None:
        """Leaves the group, in order. Happens by itself when the last handle goes.

        >>> import tulle
        >>> tulle.connect("127.0.0.1:0", rank=0, size=1).close()
        """
        self._group.close()

    def __repr__(self) -> str:
        return f"Communicator(rank {self.rank} of {self.size}, {self.transport})"


def finish(communicator: Communicator, call: Callable[[], T]) -> T:
    """Makes a blocking call. Where Ctrl-C or another signal ends it, the other ranks are told: they wait for this one."""
    try:
        return call()
    except (Error, TypeError, ValueError):  # the library's, and its refusals of arguments
        raise
    except BaseException as interruption:
        communicator.abort(f"a call was interrupted by {type(interruption).__name__}")
        raise


# ---------------------------------------------------------------- connecting


def _seconds(given: Any, name: str = "deadline") -> float:
    try:
        seconds = float(given)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {given!r}: give seconds, or leave it out for the default") from None
    if not seconds > 0:
        raise ValueError(f"{name} is {given!r}, expected more than 0 seconds")
    return seconds


def connect(
    address: str | None = None,
    *,
    rank: int | None = None,
    size: int | None = None,
    directory: str | os.PathLike[str] | None = None,
    rendezvous: Rendezvous | None = None,
    interface: str = "",
    ports: str = "",
    deadline: float = 60,
) -> Communicator:
    """Connects this process with the others of its job, over TCP. All ranks must call it.

    They meet at ``address`` ("host:port", where rank 0 listens meanwhile), by files in ``directory``, by a
    ``rendezvous`` of yours, or, where none of these is given, as the environment says: TULLE_ADDRESS, TULLE_RANK and
    TULLE_SIZE, else torchrun's variables: then rank 0 listens at MASTER_PORT + 1000. TULLE_JOB names the job, and
    TULLE_CHECKSUM=off leaves out the checksums of what crosses a socket.
    docs/tcp.md has the rest. Who connects and is none of them is refused, and a line on standard error says so.

    >>> import tulle
    >>> tulle.connect("127.0.0.1:0", rank=0, size=1)
    Communicator(rank 0 of 1, tcp)
    """
    tcp = (interface, ports, _seconds(deadline))
    if rendezvous is not None:
        return Communicator(_core.connect_by_python(rendezvous.rank, rendezvous.size, rendezvous.allgather, *tcp))
    if address is None and directory is None:
        if rank is not None or size is not None:
            raise ValueError("rank and size go with address or directory")
        return _connect_by_environment(*tcp)
    if rank is None or size is None:
        raise ValueError("address and directory want rank and size, too")
    if directory is not None:
        return Communicator(_core.connect_by_directory(os.fspath(directory), rank, size, *tcp))
    return Communicator(_core.connect_by_address(*_host_and_port(address), rank, size, *tcp))


def _connect_by_environment(interface: str, ports: str, deadline: float) -> Communicator:
    try:
        return Communicator(_core.connect_by_environment(interface, ports, deadline))
    except (SystemError, DeadlineError) as error:
        if "TULLE_ADDRESS" in os.environ or "MASTER_PORT" not in os.environ:
            raise
        master = os.environ["MASTER_PORT"]
        where = (
            f"ranks meet 1000 above MASTER_PORT {master}, or 1000 below where there is no such port, because torch's store "
            "has that one; set TULLE_ADDRESS=host:port on all ranks to meet elsewhere"
        )
        raise type(error)(f"{error}; {where}", error.rank, error.peer) from None


def _host_and_port(address: Any) -> tuple[str, int]:
    host, colon, port = str(address).rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"address '{address}' is not host:port")
    return host.strip("[]"), int(port)


class Door:
    """Where processes wait that want to become ranks of a job which is under way: see :meth:`Communicator.admit`.

    Rank 0 has it. ``host`` is the address to listen at, else all; ``port`` 0 is whichever is free. Who waits is asked
    once a second if it is still there, and has ``answer`` seconds to answer.

    >>> import tulle
    >>> tulle.Door("127.0.0.1").waiting()
    0
    """

    __slots__ = ("_door",)

    def __init__(self, host: str = "", port: int = 0, *, answer: float = 5) -> None:
        self._door = _core.Door(host, port, float(answer))

    @property
    def port(self) -> int:
        """Where newcomers call."""
        return self._door.port

    def waiting(self) -> int:
        """How many could be let in now."""
        return self._door.waiting()


def join(
    address: str, *, wait: float = 60, interface: str = "", ports: str = "", deadline: float = 60
) -> Communicator:
    """Waits at the door of a job, "host:port", until that lets this process in, for at most ``wait`` seconds.

    >>> import threading, tulle
    >>> comm, door = tulle.connect("127.0.0.1:0", rank=0, size=1), tulle.Door("127.0.0.1")
    >>> def job(members):
    ...     while members.size < 2:
    ...         members = members.admit(door)
    >>> running = threading.Thread(target=job, args=(comm,))
    >>> running.start()
    >>> tulle.join(f"127.0.0.1:{door.port}")
    Communicator(rank 1 of 2, tcp)
    >>> running.join()
    """
    host, port = _host_and_port(address)
    return Communicator(_core.join_at(host, port, _seconds(wait, "wait"), interface, ports, _seconds(deadline)))


class _Default:
    """The communicator of the environment, made when it is first needed and kept for the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._communicator: Communicator | None = None

    def get(self) -> Communicator:
        with self._lock:
            if self._communicator is None:
                self._communicator = connect()
            return self._communicator

    def close(self) -> None:
        # Not after the interpreter has gone, when nobody could say goodbye any more.
        if self._communicator is not None:
            self._communicator.close()

    def renew_lock(self) -> None:
        self._lock = threading.Lock()  # another thread of the parent may have held it


def _abort_where_the_script_raised() -> None:
    """A process that ends says goodbye, and others wait for what it still owes them. Where an exception ended it they are
    told instead, and why."""
    error = getattr(sys, "last_value", None)  # of an exception that nobody caught
    if error is None:
        return
    for communicator in list(_alive):
        try:
            communicator.abort(f"its script raised {type(error).__name__}: {error}")
        except Error:  # it was closed, or is a forked child's
            pass


_default = _Default()
atexit.register(_default.close)
atexit.register(_abort_where_the_script_raised)  # runs first
os.register_at_fork(after_in_child=_default.renew_lock)


class _MpiRendezvous:
    def __init__(self, comm: Any) -> None:
        self.rank, self.size, self._comm = comm.Get_rank(), comm.Get_size(), comm

    def allgather(self, mine: bytes) -> list[bytes]:
        return self._comm.allgather(mine)


class _TorchRendezvous:
    """Meets by the store of torch's process groups. Their collectives would wait for a rank that does not come as long as
    the group was made for, half an hour, and not name it."""

    def __init__(self, group: Any, deadline: float) -> None:
        import torch.distributed

        self._distributed, self._group, self._deadline = torch.distributed, group, deadline
        self.rank, self.size = self._distributed.get_rank(group), self._distributed.get_world_size(group)
        self._store = _torch_store()
        self._name = self._prefix = ""
        self._exchanges = 0
        if self._store is not None:
            ranks = [self._distributed.distributed_c10d.get_global_rank(group, rank) for rank in range(self.size)]
            self._name = f"{getattr(group, 'group_name', '')} {ranks}"
            _meetings[self._name] = _meetings.get(self._name, 0) + 1
            self._prefix = f"tulle {self._name} {_meetings[self._name]}"

    def allgather(self, mine: bytes) -> list[bytes]:
        if self._store is None:
            gathered: list[Any] = [None] * self.size
            self._distributed.all_gather_object(gathered, mine, group=self._group)
            return gathered
        keys = [f"{self._prefix} {self._exchanges} {rank}" for rank in range(self.size)]
        self._exchanges += 1
        self._store.set(f"{keys[self.rank]} given", mine)
        self._store.add(keys[self.rank], 1)
        self._wait_for(keys)
        return [bytes(self._store.get(f"{key} given")) for key in keys]

    def _wait_for(self, keys: list[str]) -> None:
        ends, pause = time.monotonic() + self._deadline, 0.001
        missing = list(range(self.size))
        while True:
            missing = [rank for rank in missing if self._store.add(keys[rank], 0) == 0]
            if not missing:
                return
            if time.monotonic() >= ends:
                self._store.add(keys[self.rank], -1)  # so that another try may meet those who come later
                _meetings[self._name] -= 1
                raise DeadlineError(
                    f"rank {self.rank}: {ranks_of(missing)} did not come within {self._deadline:g} s to connect with the others: "
                    "all ranks of the process group must make this call",
                    self.rank,
                    missing[0],
                )
            time.sleep(pause)
            pause = min(2 * pause, 0.1)


def _torch_store() -> Any:
    """None where the process group has none, as one of MPI's."""
    from torch.distributed import distributed_c10d

    try:
        return distributed_c10d._get_default_store()
    except (AttributeError, RuntimeError, ValueError):
        return None


def ranks_of(numbers: list[int]) -> str:
    """In words."""
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    shown = ", ".join(map(str, numbers[:8]))
    return f"ranks {shown}{f' and {len(numbers) - 8} more' if len(numbers) > 8 else ''}"


_meetings: dict[str, int] = {}
# Ranks reach their first call as far apart as they load their data: as long as a call of the library waits.
_MEETING_SECONDS = 300.0
_mpi_keyval: int | None = None
_of_torch_group: weakref.WeakKeyDictionary[Any, Communicator] = weakref.WeakKeyDictionary()


def _of_mpi(comm: Any) -> Communicator:
    """Kept with the MPI communicator, as MPI's attributes are, and so no longer than it lives."""
    global _mpi_keyval
    if _mpi_keyval is None:
        _mpi_keyval = type(comm).Create_keyval()
    made = comm.Get_attr(_mpi_keyval)
    if made is None:
        made = connect(rendezvous=_MpiRendezvous(comm))
        comm.Set_attr(_mpi_keyval, made)
    return made


def _of_torch(group: Any, deadline: float | None) -> Communicator:
    made = _of_torch_group.get(group)
    if made is None:
        meeting = _TorchRendezvous(group, _MEETING_SECONDS if deadline is None else deadline)
        made = _of_torch_group[group] = connect(rendezvous=meeting, deadline=deadline or 60)
    return made


def communicator_of(comm: Any, deadline: float | None = None) -> Communicator:
    """What ``comm=`` means: a communicator, an mpi4py communicator, a torch process group, or None: the environment's.

    The last three are connected when they are first used, which all their ranks must do, and kept. A torch process group
    waits ``deadline`` seconds for them.
    """
    if comm is None:
        return _default.get()
    if isinstance(comm, Communicator):
        return comm
    module = type(comm).__module__
    if module.startswith("mpi4py"):
        return _of_mpi(comm)
    if module.startswith("torch"):
        return _of_torch(comm, deadline)
    raise TypeError(
        f"comm is of {type(comm).__name__}; it may be a tulle.Communicator, an mpi4py communicator, a torch process "
        "group, or None"
    )


# ---------------------------------------------------------------- threads


# A thread that is still in the library when the interpreter ends would bring the process down; who computes for
# longer than this is left to itself.
_LEAVE_SECONDS = 5


class _Rank(threading.Thread):
    """One rank of threads()."""

    def __init__(self, communicator: Communicator, function: Callable[[], Any], failed: list[BaseException]) -> None:
        super().__init__(name=f"tulle rank {communicator.rank}", daemon=True)
        self.communicator, self.function, self.failed = communicator, function, failed
        self.result: Any = None

    def run(self) -> None:
        try:
            self.result = self.function()
        except BaseException as error:
            self.failed.append(error)
            with contextlib.suppress(Error):  # it was closed
                self.communicator.abort(f"its function raised {type(error).__name__}: {error}")


def threads(ranks: int, function: Callable[..., T], *arguments: Any) -> list[T]:
    """Runs ``function(communicator, *arguments)`` on so many ranks, each a thread of this process, and gives their
    results by rank: to try things out, and for tests. Where one raises, the others are told, and this raises the same.

    >>> import numpy as np, tulle
    >>> def function(comm):
    ...     return tulle.allreduce(np.full(3, comm.rank + 1.0), comm=comm)
    >>> tulle.threads(4, function)[0]
    array([10., 10., 10.])
    """
    if not hasattr(ranks, "__index__"):
        raise TypeError(f"ranks are {ranks!r}: give their number")
    failed: list[BaseException] = []  # in the order of time; what follows from the first comes later
    communicators = [Communicator(group) for group in _core.thread_groups(ranks)]
    running = [_Rank(each, lambda each=each: function(each, *arguments), failed) for each in communicators]
    for rank in running:
        rank.start()
    try:
        for rank in running:
            while rank.is_alive():
                rank.join(0.1)  # so that Ctrl-C is seen
    except BaseException:
        for communicator in communicators:
            communicator.abort("the ranks were interrupted")
        for rank in running:
            rank.join(_LEAVE_SECONDS)
        raise
    own = [error for error in failed if not isinstance(error, PeerFailedError)]
    if failed:
        raise (own or failed)[0]
    return [rank.result for rank in running]
