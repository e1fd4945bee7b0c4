"""What moves from an optimizer into a recipe: momentum, Nesterov and weight decay.

A recipe with momentum accumulates velocities instead of gradients, so that what is sent later is sent with its momentum.
An optimizer that had momentum as well would apply it twice.
"""
from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .._gradient import Recipe, merged_recipe, recipe_fields, recipe_text


_TAKEN = {"momentum": 0, "nesterov": False, "weight_decay": 0}  # what is left to the optimizer


@dataclass
class TakeOver:
    """What was agreed on between a recipe and an optimizer."""

    recipe: str
    note: str  #: one line for people
    needs_weights: bool = False  #: the recipe's weight decay wants them
    weight_decay: dict[int, float] = field(default_factory=dict)  #: by id of the parameter, where they differ
    optimizer: weakref.ref[torch.optim.Optimizer] | None = None  #: whose momentum moves

    def watch(self, optimizer: torch.optim.Optimizer) -> None:
        """Looks at another object with the same groups from now on."""
        self.optimizer = self.optimizer and weakref.ref(optimizer)

    def apply(self) -> None:
        """Takes it out of the optimizer's groups: when nothing can fail any more."""
        optimizer = self.optimizer and self.optimizer()
        for group in optimizer.param_groups if optimizer else ():
            group.update(_TAKEN)

    def require(self) -> None:
        """Raises ValueError where something has brought back to the optimizer what is the recipe's now."""
        optimizer = self.optimizer and self.optimizer()
        for group in optimizer.param_groups if optimizer else ():
            for name in _TAKEN:
                if group[name]:
                    raise ValueError(
                        f"the optimizer has {name} {group[name]} again, which is the recipe's since register() or "
                        "DistributedOptimizer(). If a scheduler sets it, as OneCycleLR does, give that "
                        "cycle_momentum=False. If load_state_dict() did, load the optimizer's state of a run without "
                        "Tulle before, and that of a run with Tulle afterwards"
                    )

    def state_dict(self, parameters: Iterable[torch.Tensor]) -> dict[str, Any]:
        """What was taken, for :meth:`require_same`: tensors and numbers only."""
        fields = recipe_fields(self.recipe)
        if not fields["momentum"]:
            return {}
        decays = [self.weight_decay.get(id(each), fields["weight_decay"]) for each in parameters]
        return {
            "taken momentum": float(fields["momentum"]),
            "taken nesterov": int(fields["nesterov"]),
            "taken weight decays": torch.tensor(decays, dtype=torch.float64),
        }

    def require_same(self, state_dict: Any, parameters: Iterable[torch.Tensor]) -> None:
        """Raises ValueError where what a saved run had taken over is not what this one has."""
        mine = self.state_dict(parameters)
        for each in dicts_of(state_dict):
            for key, value in mine.items():
                if key in each and not torch.equal(torch.as_tensor(each[key]), torch.as_tensor(value)):
                    what = key.partition(" ")[2]
                    raise ValueError(
                        f"the saved run had taken over other {what} from its optimizer: {each[key]}, not {value}. Give the "
                        "optimizer what it had then, call register() or DistributedOptimizer(), and load the optimizer's "
                        "state only afterwards: it has none of this any more"
                    )


def dicts_of(state_dict: Any) -> list[Mapping[str, Any]]:
    """One state as a list, or the list. Raises TypeError for what is neither."""
    dicts = [state_dict] if isinstance(state_dict, Mapping) else state_dict
    if isinstance(dicts, (list, tuple)) and all(isinstance(each, Mapping) for each in dicts):
        return list(dicts)
    kind = type(state_dict).__name__
    raise TypeError(f"a {kind} is no state: give what state_dict() gave, or a list of what it gave on all ranks")


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
    """What the recipe wants inside moves out of the optimizer, whose groups :meth:`TakeOver.apply` changes."""
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
    made = merged_recipe(recipe, changes)
    note = f"took over from {type(optimizer).__name__}: momentum {momentum:g}" + (", Nesterov" if nesterov else "")
    note += f", weight decay {changes['weight_decay']:g}" if not by_parameter else ", weight decay by group"
    return TakeOver(made, note, bool(changes.get("weight_decay")), by_parameter, weakref.ref(optimizer))
