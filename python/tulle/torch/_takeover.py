"""What moves from an optimizer into a recipe: momentum, Nesterov and weight decay.

A recipe with momentum accumulates velocities instead of gradients, so that what is sent later is sent with its momentum.
An optimizer that had momentum as well would apply it twice.
"""
from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import torch

from .._gradient import Recipe, merged_recipe, recipe_fields, recipe_text


@dataclass
class TakeOver:
    """What was agreed on between a recipe and an optimizer."""

    recipe: str
    note: str  #: one line for people
    needs_weights: bool = False  #: the recipe's weight decay wants them
    weight_decay: dict[int, float] = field(default_factory=dict)  #: by id of the parameter, where they differ


def _common(groups: list[dict[str, Any]], name: str) -> Any:
    values = {group.get(name, 0) for group in groups}
    if len(values) == 1:
        return values.pop()
    raise ValueError(f"the optimizer's groups differ in {name}, and a recipe has one for all: {sorted(values)}")


def _require_sgd(optimizer: torch.optim.Optimizer, recipe: str) -> None:
    if not isinstance(optimizer, torch.optim.SGD):
        raise ValueError(
            f"recipe {recipe} keeps momentum inside and takes it over from torch.optim.SGD, not from "
            f"{type(optimizer).__name__}: use a recipe without momentum, as topk, or add |momentum:0 to it"
        )


def take_over(recipe: Recipe, optimizer: torch.optim.Optimizer | None) -> TakeOver:
    """Moves what the recipe wants inside out of the optimizer, whose groups are changed."""
    fields, text = recipe_fields(recipe), recipe_text(recipe)
    if fields["momentum"] == 0:
        return TakeOver(text, "the optimizer keeps momentum and weight decay", fields["weight_decay"] != 0)
    if optimizer is None:
        warnings.warn(
            f"recipe {text} keeps momentum {fields['momentum']:g} inside: give optimizer=, which hands over its own, or "
            "use an optimizer without momentum",
            stacklevel=3,
        )
        return TakeOver(text, "momentum is the recipe's", fields["weight_decay"] != 0)
    _require_sgd(optimizer, text)
    groups = optimizer.param_groups
    momentum, nesterov, dampening = (_common(groups, name) for name in ("momentum", "nesterov", "dampening"))
    if dampening != 0:
        raise ValueError("the optimizer has dampening, which no recipe has: set it to 0")
    changes: dict[str, Any] = {"nesterov": bool(nesterov)}
    if momentum:
        changes["momentum"] = momentum
    decays = {float(group["weight_decay"]) for group in groups}
    by_parameter: dict[int, float] = {}
    if len(decays) == 1:
        changes["weight_decay"] = decays.pop() or fields["weight_decay"]
    elif fields["clip"] != 0:
        raise ValueError("the optimizer's groups differ in weight_decay, which goes with no recipe that clips")
    else:
        by_parameter = {id(p): float(group["weight_decay"]) for group in groups for p in group["params"]}
    for group in groups:
        group.update(momentum=0, nesterov=False, weight_decay=0)
    made = merged_recipe(recipe, changes)
    note = f"took over from {type(optimizer).__name__}: momentum {momentum:g}" + (", Nesterov" if nesterov else "")
    note += f", weight decay {changes['weight_decay']:g}" if not by_parameter else ", weight decay by group"
    return TakeOver(made, note, bool(changes.get("weight_decay")), by_parameter)
