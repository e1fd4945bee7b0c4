"""Which values of a dense array to send."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from . import _core
from ._arrays import checked, require_writable
from ._stream import Stream

if TYPE_CHECKING:
    from typing_extensions import Unpack


class SelectOptions(TypedDict, total=False):
    """What a selector may be given; docs/selectors.md says what each row reads."""

    k: int  #: how many; bucketed_top_k: of each bucket
    density: float  #: k as a share of the values
    threshold: float  #: threshold_filter: the least magnitude
    cap: int  #: the most that may pass
    sign: str  #: any, positive or negative
    bucket: int  #: bucketed_top_k: consecutive values of a bucket
    form: str  #: bucketed_top_k: exact or randomized
    seed: int  #: of everything random, together with step
    step: int
    threads: int  #: 0: all processors
    non_finite: str  #: error, largest or skip


@dataclass(frozen=True)
class Selection:
    """What a selector gives."""

    stream: Stream
    threshold: float  #: the least magnitude that was let pass; 0 where there is no such bound
    passed: int  #: how many reached it, before a cap or a second selection


def _made(stream: _core.AnyStream, threshold: float, passed: int) -> Selection:
    return Selection(Stream._wrap(stream), threshold, passed)


def select(array: np.ndarray, selector: str = "exact_top_k", **options: Unpack[SelectOptions]) -> Selection:
    """Selects values by magnitude; the array stays as it is. ``tulle.selectors()`` lists the selectors.

    >>> import numpy as np, tulle
    >>> tulle.select(np.array([1.0, -5.0, 2.0, 4.0]), k=2).stream.indices
    array([1, 3], dtype=uint32)
    """
    array, type_name = checked(array)
    return _made(*_core.select(selector, type_name, array, None, "copy", options))


def select_in_place(residual: np.ndarray, selector: str = "exact_top_k", **options: Unpack[SelectOptions]) -> Selection:
    """The same, and what is selected becomes 0 in ``residual``.

    >>> import numpy as np, tulle
    >>> residual = np.array([1.0, -5.0, 2.0])
    >>> tulle.select_in_place(residual, k=1).stream.values, residual
    (array([-5.]), array([1., 0., 2.]))
    """
    residual, type_name = checked(residual, name="residual")
    require_writable(residual, "residual")
    return _made(*_core.select(selector, type_name, residual, None, "in place", options))


def accumulate_and_select(
    residual: np.ndarray, gradient: np.ndarray, selector: str = "exact_top_k", **options: Unpack[SelectOptions]
) -> Selection:
    """Adds ``gradient`` to ``residual`` and selects in place, in one pass where the selector makes one.

    >>> import numpy as np, tulle
    >>> residual = np.array([1.0, 0.0, 2.0])
    >>> tulle.accumulate_and_select(residual, np.array([0.5, 3.0, 2.5]), k=1).stream.values, residual
    (array([4.5]), array([1.5, 3. , 0. ]))
    """
    residual, type_name = checked(residual, name="residual")
    require_writable(residual, "residual")
    gradient, _ = checked(gradient, type_name, "gradient")
    return _made(*_core.select(selector, type_name, residual, gradient, "in place", options))


def selectors() -> list[dict[str, Any]]:
    """All selectors.

    >>> import tulle
    >>> tulle.selectors()[0]["name"]
    'exact_top_k'
    """
    return _core.selectors()
