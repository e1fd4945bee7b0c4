"""Errors of the library: one class for each kind. docs/errors.md says what each means and what to do."""
from __future__ import annotations

import builtins


class Error(Exception):
    """A failure that the library reports.

    ``kind`` is the name of its kind, ``rank`` the rank that reports it and ``peer`` the one that it concerns, where
    these are known.

    >>> import tulle
    >>> try:
    ...     tulle.Stream([3], [1.0], dimension=2)
    ... except tulle.Error as error:
    ...     print(error.kind, error.rank, error)
    bad_input None position 0: index 3 is outside [0, 2) of a stream with N = 2
    """

    kind: str = ""
    rank: int | None
    peer: int | None

    def __init__(self, message: str = "", rank: int | None = None, peer: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank
        self.peer = peer

    def __reduce__(self) -> tuple[type, tuple[str, int | None, int | None]]:
        return type(self), (str(self), self.rank, self.peer)


class BadInputError(Error, ValueError):
    """The caller's data or options: an index outside, an unknown algorithm. The communicator stays usable."""

    kind = "bad_input"


class UnsupportedError(Error):
    """A valid request that this transport or build cannot serve. The communicator stays usable."""

    kind = "unsupported"


class MismatchError(Error):
    """Ranks disagree on what they are doing."""

    kind = "mismatch"


class BadMessageError(Error):
    """Bytes that arrived are not what the wire format allows."""

    kind = "bad_message"


class DeadlineError(Error, TimeoutError):
    """An operation did not finish in time; the message names who was waited for."""

    kind = "deadline"


class PeerFailedError(Error):
    """Another rank failed and said so, or died."""

    kind = "peer_failed"


class BrokenError(Error):
    """The communicator failed earlier and cannot be used any more."""

    kind = "broken"


class SystemError(Error):  # noqa: A001 - a kind has one name everywhere
    """The operating system reported a failure."""

    kind = "system"


class ExcludedError(Error):
    """The survivors go on without this rank, or it cannot know what they agreed on."""

    kind = "excluded"


_CLASSES = {each.kind: each for each in Error.__subclasses__()}
_BY_NAME = {each.__name__: each for each in Error.__subclasses__()}


def make_error(kind: str, message: str, rank: int | None, peer: int | None) -> Error:
    """The error as the core reports it."""
    return _CLASSES[kind](message, rank, peer)


def class_of(name: str) -> type[Exception]:
    """The class of an error that another rank names: one of these, or of Python's, or RuntimeError."""
    found = _BY_NAME.get(name) or getattr(builtins, name, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else RuntimeError
