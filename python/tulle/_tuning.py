"""What calls cost: by the model, and in simulation."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, TypedDict

from . import _core

if TYPE_CHECKING:
    from typing_extensions import Unpack


class PlannedCall(TypedDict, total=False):
    """A call that is not made."""

    ranks: int
    ranks_per_node: int
    dimension: int
    density: float  #: of one rank's stream; with takes="accumulator" what is to be delivered
    takes: str  #: stream or accumulator
    type: str  #: f32, ...
    index_coding: str
    value_coding: str
    teams: int
    network: str  #: a row of ``tulle.networks()``
    profile: str  #: a file of ``tulle probe``


class SimulatedCall(TypedDict, total=False):
    """A call that is made in virtual time."""

    ranks: int
    ranks_per_node: int
    network: str  #: a row of ``tulle.networks()``
    dimension: int
    density: float
    takes: str  #: stream or accumulator
    type: str
    index_coding: str
    value_coding: str
    teams: int
    calls: int  #: one after the other
    seed: int
    data: str  #: auto, real or phantom: lengths without data


def explain(**call: Unpack[PlannedCall]) -> dict[str, Any]:
    """What each algorithm costs in a call, the cheapest first; where the choice turns; how far bounds are.

    >>> import tulle
    >>> costs = tulle.explain(ranks=8, dimension=2**24, density=0.001, network="gige")
    >>> costs["rows"][0]["seconds"] < costs["best_dense"]["seconds"], costs["indices"]["coding"]
    (True, 'rice')
    """
    return _core.explain(call)


def plan(ranks: Iterable[int], densities: Iterable[float], **call: Unpack[PlannedCall]) -> list[dict[str, Any]]:
    """Which algorithm wins for each number of ranks and each density, and by how much over the best dense one.

    >>> import tulle
    >>> cells = tulle.plan([2, 8], [0.001, 0.5], dimension=2**24, network="gige")
    >>> len(cells), cells[0]["speed_up"] > 10
    (4, True)
    """
    return _core.plan(list(ranks), list(densities), call)


def simulate(algorithms: str | Iterable[str] = "auto", **call: Unpack[SimulatedCall]) -> list[dict[str, Any]]:
    """Runs allreduces of up to 4096 ranks in virtual time on synthetic data, checks them and says what they took.

    >>> import tulle
    >>> rows = tulle.simulate(["dense_ring", "auto"], ranks=4, dimension=2**16, density=0.01, network="gige")
    >>> [row["verified"] for row in rows], rows[0]["seconds"] > rows[1]["seconds"]
    ([True, True], True)
    """
    return _core.simulate([algorithms] if isinstance(algorithms, str) else list(algorithms), call)


def algorithms() -> list[dict[str, Any]]:
    """All rows of the registry.

    >>> import tulle
    >>> "spardl" in {row["name"] for row in tulle.algorithms() if row["takes"] == "accumulator"}
    True
    """
    return _core.algorithms()


def networks() -> list[dict[str, Any]]:
    """The networks that have a name.

    >>> import tulle
    >>> "gige" in {row["name"] for row in tulle.networks()}
    True
    """
    return _core.networks()
