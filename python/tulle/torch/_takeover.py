"""What moves from an optimizer into a recipe: momentum, Nesterov and weight decay.

A recipe with momentum accumulates velocities instead of gradients, so that what is sent later is sent with its momentum.
An optimizer that had momentum as well would apply it twice.
"""
from __future__ import annotations

import os
import sys
import types
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, Union

import torch

from .._gradient import Recipe, merged_recipe, recipe_fields, recipe_text

#: What ``optimizer=`` may be.
Optimizers = Optional[Union[torch.optim.Optimizer, Sequence[torch.optim.Optimizer]]]
Group = dict[str, Any]
_TAKEN = {"momentum": 0, "nesterov": False, "weight_decay": 0}  # what is left to the optimizer
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep


def warn(text: str) -> None:
    """A warning that points to the script's line."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)


def unwrapped(optimizer: Any) -> Any:
    """Without what accelerate and Lightning put around an optimizer."""
    inner = getattr(optimizer, "optimizer", None)
    return unwrapped(inner) if isinstance(inner, torch.optim.Optimizer) else optimizer


def optimizers_of(given: Optimizers) -> list[torch.optim.Optimizer]:
    """One or several as a list, unwrapped. Raises TypeError for what is none."""
    several = [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]
    made = [unwrapped(each) for each in several]
    for each in made:
        if not isinstance(each, torch.optim.Optimizer):
            raise TypeError(f"optimizer= is a {type(each).__name__}: pass an optimizer of torch's, or a list of some")
    return made


def _inner(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The one that makes the steps: ZeroRedundancyOptimizer has one of this rank's parameters inside."""
    inner = getattr(optimizer, "optim", None)
    return inner if isinstance(inner, torch.optim.Optimizer) else optimizer


@dataclass
class _Update:
    """A gradient as it was delivered."""

    name: str
    parameter: torch.Tensor
    gradient: torch.Tensor | None
    version: int | None
    norm: float | None

    def is_changed(self, scale: float) -> bool:
        now = self.parameter.grad
        if self.norm is None or now is None or now.is_sparse:
            return now is not self.gradient or (now is not None and now._version != self.version)
        norm = float(now.float().norm()) / scale
        return not abs(norm - self.norm) <= 1e-2 * self.norm + 1e-30


def _around_steps(optimizer: Any, before: Callable[[Any], None], after: Callable[[Any], None]) -> None:
    """Calls them around the optimizer's steps. Where a step computes gradients by a closure, as Lightning's do, which also
    clip in it, that comes before."""

    def then_before(closure: Any) -> Any:
        def computing() -> Any:
            loss = closure()
            before(optimizer)
            return loss

        return computing if callable(closure) else closure

    def wrapped(arguments: Any, named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return tuple(map(then_before, arguments)), {name: then_before(each) for name, each in named.items()}

    def has_closure(arguments: Any, named: Any) -> bool:
        return any(map(callable, (*arguments, *named.values())))

    def before_step(_: Any, arguments: Any, named: Any) -> Any:
        if has_closure(arguments, named):
            return wrapped(arguments, named)
        return before(optimizer)

    if hasattr(optimizer, "register_step_pre_hook"):
        optimizer.register_step_pre_hook(before_step)
        optimizer.register_step_post_hook(lambda *_: after(optimizer))
        return
    own = optimizer.step  # of torch 1.13; schedulers have put theirs there, or will, and want a method

    def step(_: Any, *arguments: Any, **named: Any) -> Any:
        if has_closure(arguments, named):
            arguments, named = wrapped(arguments, named)
        else:
            before(optimizer)
        try:
            return own(*arguments, **named)
        finally:
            after(optimizer)

    step.__dict__.update({name: value for name, value in own.__dict__.items() if name != "__wrapped__"})
    optimizer.step = types.MethodType(step, optimizer)


@dataclass
class TakeOver:
    """What was agreed on between a recipe and optimizers."""

    recipe: str
    note: str  #: one line for people
    needs_weights: bool = False  #: the recipe's weight decay wants them
    weight_decay: dict[int, float] = field(default_factory=dict)  #: by id of the parameter, where they differ
    optimizers: list[weakref.ref[torch.optim.Optimizer]] = field(default_factory=list)  #: whose momentum moves
    own: frozenset[int] = frozenset()  #: ids of the parameters that the recipe sends
    _delivered: list[_Update] = field(default_factory=list)  #: since the optimizers' last step

    def watch(self, optimizer: torch.optim.Optimizer) -> None:
        """Looks at another object with the same groups from now on."""
        if self.optimizers:
            self.optimizers = [weakref.ref(optimizer)]

    def _groups(self) -> Iterator[Group]:
        for reference in self.optimizers:
            optimizer = reference()
            if optimizer is not None:
                yield from _groups_of(optimizer, self.own)
                if _inner(optimizer) is not optimizer:
                    yield from _groups_of(_inner(optimizer), self.own)

    def apply(self) -> None:
        """Takes it out of the optimizers' groups: when nothing can fail any more."""
        for group in self._groups():
            group.update(_TAKEN)

    def require(self) -> None:
        """Raises ValueError where something has brought back to an optimizer what is the recipe's now."""
        for group in self._groups():
            for name in _TAKEN:
                if group[name]:
                    raise ValueError(
                        f"the optimizer has {name} {group[name]} again, which is the recipe's since register() or "
                        "DistributedOptimizer(). If a scheduler sets it, as OneCycleLR does, give that "
                        "cycle_momentum=False. If load_state_dict() did, load the optimizer's state of a run without "
                        "Tulle before, and that of a run with Tulle afterwards"
                    )

    # ------------------------------------------------------------ updates must reach the optimizer as they are

    def deliver(self, named: Mapping[str, torch.Tensor], norms: Mapping[str, float] | None = None) -> None:
        """Remembers the updates that the parameters have as gradients now. ``norms`` are given where a scaler will change
        them."""
        if self.optimizers:
            self._delivered = [
                _Update(name, each, each.grad, None if each.grad is None else each.grad._version, (norms or {}).get(name))
                for name, each in named.items()
            ]

    def require_delivered(self, optimizer: Any) -> None:
        """Raises ValueError where a gradient is not what was delivered: a momentum that is clipped or scaled after it was
        gathered is not the one of clipped gradients."""
        scale = getattr(optimizer, "grad_scale", None)  # of an optimizer that unscales by itself
        for each in self._delivered:
            if each.is_changed(1.0 if scale is None else float(scale)):
                raise ValueError(
                    f"the gradient of {each.name} was changed after it was summed, and recipe {self.recipe} keeps momentum "
                    "inside, so that it is an update made of several steps. To clip, give max_norm= to register() or "
                    "DistributedOptimizer() instead of clip_grad_norm_() or gradient_clip_val"
                )

    def forget_delivered(self) -> None:
        self._delivered = []

    def look_at_steps(self) -> None:
        """Calls :meth:`require_delivered` before every step of the optimizers."""
        own = weakref.ref(self)

        def before(optimizer: Any) -> None:
            taken = own()
            if taken is not None:
                taken.require_delivered(optimizer)

        def after(_: Any) -> None:
            taken = own()
            if taken is not None:
                taken.forget_delivered()

        for reference in self.optimizers:
            optimizer = reference()
            if optimizer is not None:
                _around_steps(optimizer, before, after)

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


def _groups_of(optimizer: torch.optim.Optimizer, own: frozenset[int]) -> list[Group]:
    """Those that have one of the parameters."""
    return [group for group in optimizer.param_groups if any(id(each) in own for each in group["params"])]


def _common(groups: list[Group], name: str) -> Any:
    values = {group.get(name, 0) for group in groups}
    if len(values) == 1:
        return values.pop()
    raise ValueError(f"the optimizer's groups differ in {name}, and a recipe has one for all: {sorted(values)}")


def _require_sgd(optimizer: torch.optim.Optimizer, recipe: str) -> None:
    if not isinstance(_inner(optimizer), torch.optim.SGD):
        raise ValueError(
            f"recipe {recipe} keeps momentum inside and takes it over from torch.optim.SGD, not from "
            f"{type(_inner(optimizer)).__name__}: use a recipe without momentum, as topk, or add |momentum:0 to it"
        )


def _require_all(optimizers: list[torch.optim.Optimizer], named: Mapping[str, torch.Tensor]) -> None:
    """Raises ValueError unless the optimizers have all that is trained."""
    held = {id(each) for optimizer in optimizers for group in optimizer.param_groups for each in group["params"]}
    missing = [name for name, each in named.items() if id(each) not in held]
    if missing:
        names = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
        raise ValueError(
            f"optimizer= does not have {names}, which the model trains: pass the optimizer that was made with "
            "model.parameters(), a list where there are several, and freeze what none of them has"
        )


def _require_own(groups: list[Group], named: Mapping[str, torch.Tensor], own: frozenset[int]) -> None:
    """Raises ValueError where a group has parameters of the recipe and others, whose momentum would be taken away."""
    names = {id(each): name for name, each in named.items()}
    for group in groups:
        for each in group["params"]:
            if each.requires_grad and id(each) not in own:
                what = names.get(id(each), f"a parameter of shape {tuple(each.shape)} that is not the model's")
                raise ValueError(
                    f"the optimizer has {what} in one group with parameters whose momentum moves into the recipe, which "
                    "does not send it: put it into a group of its own"
                )


def take_over(
    recipe: Recipe, given: Optimizers, named: Mapping[str, torch.Tensor], sent: Iterable[torch.Tensor]
) -> TakeOver:
    """What the recipe wants inside moves out of the optimizers, whose groups :meth:`TakeOver.apply` changes. ``named`` are
    the parameters that are trained, ``sent`` those of them that travel by the recipe."""
    fields, text = recipe_fields(recipe), recipe_text(recipe)
    optimizers = optimizers_of(given)
    if optimizers:
        _require_all(optimizers, named)
    if fields["momentum"] == 0:
        return TakeOver(text, "the optimizer keeps momentum and weight decay", fields["weight_decay"] != 0)
    if not optimizers:
        warn(
            f"recipe {text} keeps momentum {fields['momentum']:g} inside: give optimizer=, which hands over its own, or "
            "use an optimizer without momentum"
        )
        return TakeOver(text, "momentum is the recipe's", fields["weight_decay"] != 0)
    own = frozenset(id(each) for each in sent)
    if not own:
        return TakeOver(text, "momentum is the recipe's, which sends nothing", False)
    optimizers = [each for each in optimizers if _groups_of(each, own)]
    for optimizer in optimizers:
        _require_sgd(optimizer, text)
    groups = [group for each in optimizers for group in _groups_of(each, own)]
    _require_own(groups, named, own)
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
    note = f"took over from {type(_inner(optimizers[0])).__name__}: momentum {momentum:g}" + (", Nesterov" if nesterov else "")
    note += f", weight decay {changes['weight_decay']:g}" if not by_parameter else ", weight decay by group"
    references = [weakref.ref(each) for each in optimizers]
    return TakeOver(made, note, bool(changes.get("weight_decay")), by_parameter, references, own)
