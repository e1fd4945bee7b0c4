"""A bound on the norm of a rank's gradient, before it is accumulated."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch


def require_max_norm(max_norm: Any) -> None:
    """Raises for what is no bound."""
    if max_norm is None:
        return
    if isinstance(max_norm, bool) or not isinstance(max_norm, (int, float)):
        raise TypeError(f"max_norm is {max_norm!r}: give a number, or leave it out")
    if not (max_norm > 0 and math.isfinite(max_norm)):
        raise ValueError(f"max_norm is {max_norm!r}, expected more than 0")


def scale_down(
    dense: Sequence[torch.Tensor], sparse: Sequence[torch.Tensor], max_norm: float | None, scale: float = 1.0
) -> None:
    """Scales all gradients so that the norm of all together is at most the bound. Sparse ones are ``scale`` times what they
    should be."""
    if max_norm is None:
        return
    total = sum(_square(each) for each in dense) + sum(_square(each.coalesce()._values()) for each in sparse) / scale**2
    norm = math.sqrt(total)
    if norm > max_norm:  # not where it is NaN, which is told later
        for each in (*dense, *(each._values() for each in sparse)):
            each.mul_(max_norm / norm)


def _square(values: torch.Tensor) -> float:
    norm = float(torch.linalg.vector_norm(values, dtype=torch.float32))
    if not math.isfinite(norm) or norm < 1e-15:  # squares do not fit
        norm = float(torch.linalg.vector_norm(values, dtype=torch.float64))
    return norm**2
