"""What ranks tell each other before a pipeline is made: who failed, and how it was called."""
from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Callable, TypeVar

from .. import _core
from .._communicator import Communicator, _seconds, finish
from .._errors import class_of
from ._all_reduce import communicator_for

T = TypeVar("T")
# Of the communicator, for a first word: calls of the script's may be under way on the others.
_CHANNEL = (1 << 20) - 2


class Meeting:
    """The ranks that make one call, before they rely on each other. ``options`` are the synchronizer's."""

    def __init__(self, group: Any, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self._deadline: float | None = None
        self._error: Exception | None = None
        try:
            self._deadline = _seconds(options["deadline"]) if "deadline" in options else None
        except (TypeError, ValueError) as error:
            self._error = error
        self._comm = communicator_for(group, self._deadline).channel(_CHANNEL)

    def prepare(self, call: Callable[[], T]) -> T:
        """What the call gives, which communicates nothing. Where it raises on one rank, all ranks raise the same class; the
        text on the others names the rank."""
        result: Any = None
        if self._error is None:
            try:
                result = call()
                self._try_options()
            except Exception as error:
                self._error = error
        told = b"" if self._error is None else json.dumps([type(self._error).__name__, str(self._error)]).encode()
        with self._comm._within(self._deadline):
            everyone = self._comm.gather_bytes(told)
        if self._error is not None:
            raise self._error
        for rank, each in enumerate(everyone):
            if each:
                kind, text = json.loads(each)
                raise class_of(kind)(f"rank {rank}: {text}")
        return result

    def _try_options(self) -> None:
        """Raises what a synchronizer with them would raise."""
        without = {name: value for name, value in self._options.items() if (name, value) != ("boundaries", "measured")}
        _core.Synchronizer(_core.thread_groups(1)[0], [("w", 1, "hidden", 0)], "dense", without)

    def agree(self, settings: Mapping[str, Any]) -> None:
        """Raises MismatchError on all ranks where they have different settings."""
        rows = [(name, str(value)) for name, value in settings.items()]
        with self._comm._within(self._deadline):
            finish(self._comm, lambda: self._comm._group.require_same_settings(rows))

    def members(self) -> Communicator:
        """The ranks with a communicator of their own, because several pipelines may live on one group."""
        with self._comm._within(self._deadline):
            comm = self._comm.split(0)
        if self._deadline is not None:
            comm.set_default_deadline(self._deadline)  # of what is summed beside the synchronizer
        if comm.transport != "threads":
            comm.start_progress_thread()
        return comm
