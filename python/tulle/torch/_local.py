"""Training with local steps: ranks go their own ways and meet every few of them."""
from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable

import torch

from .._gradient import Recipe, SynchronizerOptions, merged_recipe, recipe_fields
from ._all_reduce import broadcast_parameters
from ._meeting import Meeting
from ._pipeline import Pipeline, chosen, require_types, synchronizer_rows, trained

if TYPE_CHECKING:
    from typing_extensions import Unpack


def _require_own(model: Any, inner: Any) -> None:
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise TypeError("the model is in DistributedDataParallel, which sums in every step: pass ddp.module, and call that")
    groups = getattr(inner, "param_groups", None)
    if groups is None:
        raise TypeError(f"inner is a {type(inner).__name__}: pass an optimizer of the model's parameters")
    own = {id(each) for each in model.parameters()}
    if not any(id(each) in own for group in groups for each in group["params"]):
        raise ValueError("inner has none of the model's parameters: make it with model.parameters()")
    _require_exchanged(groups, own)


def _require_exchanged(groups: Any, known: Any) -> None:
    """Raises ValueError where the optimizer changes a parameter that ranks do not exchange."""
    for group in groups:
        for each in group["params"]:
            if each.requires_grad and id(each) not in known:
                raise ValueError(
                    f"inner has a parameter of shape {tuple(each.shape)} that was not the model's, or had no requires_grad, at "
                    "Local(), so that ranks would not exchange it: make inner with model.parameters(), and Local() again "
                    "where the model has changed"
                )


class _Plan:
    """What a rank finds out before it talks to the others."""

    def __init__(self, model: Any, inner: Any, recipe: Recipe, every: int | None, roles: Any) -> None:
        _require_own(model, inner)
        self.recipe = chosen(recipe)
        if every is None and recipe_fields(self.recipe)["every"] == 1:
            every = recipe_fields(recipe)["every"]  # TULLE_RECIPE=dense turns compression off, not local steps
        if every is not None:
            self.recipe = merged_recipe(self.recipe, {"every": int(every)})
        self.named = trained(model)
        require_types(self.named)
        synchronizer_rows(self.named, roles or {})


class Local:
    """Makes the steps of an optimizer, and after every so many exchanges how far the weights have moved.

    Without DistributedDataParallel. ``inner`` is any optimizer of the model's parameters; its state stays with the rank.
    ``recipe`` is one with local steps (local2, diloco, sparseloco) or any other; ``every`` replaces its number of them.
    All ranks must make it, and take as many steps; ranks begin with the weights of rank 0. ``options`` are those of
    :class:`tulle.Synchronizer`. Schedulers take ``local.inner``. TULLE_RECIPE in the environment replaces the recipe, but
    one without local steps leaves their number as it is.

    >>> import torch, tulle
    >>> def function(comm):
    ...     layer = torch.nn.Linear(1, 1, bias=False)
    ...     torch.nn.init.zeros_(layer.weight)
    ...     local = tulle.torch.Local(layer, torch.optim.SGD(layer.parameters(), lr=1.0), "local2", group=comm)
    ...     for _ in range(2):
    ...         local.zero_grad()
    ...         layer(torch.full((1, 1), comm.rank + 1.0)).sum().backward()
    ...         local.step()
    ...     return layer.weight.item()
    >>> tulle.threads(2, function)
    [-3.0, -3.0]
    """

    def __init__(
        self,
        model: torch.nn.Module,
        inner: torch.optim.Optimizer,
        recipe: Recipe = "sparseloco",
        every: int | None = None,
        *,
        group: Any = None,
        roles: Mapping[str, str] | None = None,
        **options: Unpack[SynchronizerOptions],
    ) -> None:
        meeting = Meeting(group, options)
        plan = meeting.prepare(lambda: _Plan(model, inner, recipe, every, roles))
        meeting.agree({"the call": "tulle.torch.Local()"})
        self.every = int(recipe_fields(plan.recipe)["every"])
        self.inner = inner
        self._pipeline = Pipeline(plan.named, plan.recipe, meeting.members(), roles, options)
        broadcast_parameters(model, group=self._pipeline.comm)
        self._before = [parameter.detach().clone() for parameter in self._pipeline.named.values()]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The inner optimizer's."""
        return self.inner.param_groups

    def zero_grad(self, *arguments: Any, **named: Any) -> None:
        """The inner optimizer's."""
        self.inner.zero_grad(*arguments, **named)

    def step(self, closure: Callable[[], Any] | None = None, *, scaler: Any = None) -> Any:
        """A step of the inner optimizer, and the exchange where one is due: then all ranks wait for each other.

        With a GradScaler call ``local.step(scaler=scaler)`` instead of ``scaler.step(local)``: a rank that skips its step
        because of an infinity must come to the exchange all the same.
        """
        arguments = () if closure is None else (closure,)
        loss = self.inner.step(*arguments) if scaler is None else scaler.step(self.inner, *arguments)
        if self._pipeline.synchronizer.count_local_step():
            with self._pipeline.step():
                self._exchange()
        return loss

    @torch.no_grad()
    def _exchange(self) -> None:
        _require_exchanged(self.inner.param_groups, self._pipeline.number)
        parameters = list(self._pipeline.named.values())
        self._pipeline.compare_weights(self._before)
        moved = [before.float() - now.float() for before, now in zip(self._before, parameters)]
        places = self._pipeline.places(dict(enumerate(moved)))
        self._pipeline.start([(number, place, None) for number, place in places.items()])
        self._pipeline.end_step()
        self._pipeline.finish(places)
        for before, update, now in zip(self._before, moved, parameters):
            now.copy_(before.float() - update)
            before.copy_(now)

    @property
    def recipe(self) -> str:
        """The recipe in use, as text."""
        return self._pipeline.synchronizer.recipe

    def plan(self) -> list[dict[str, Any]]:
        """How each parameter travels, why, and the bytes that are kept for it."""
        return self._pipeline.synchronizer.plan()

    def report(self) -> str:
        """One screen about all exchanges so far. All ranks must call it."""
        return self._pipeline.synchronizer.report()

    def state_dict(self, all_ranks: bool = False) -> dict[str, Any]:
        """The inner optimizer's state, the weights of the last exchange, and what the pipeline keeps."""
        before = {name: each.clone() for name, each in zip(self._pipeline.named, self._before)}
        return {"inner": self.inner.state_dict(), "before": before, "pipeline": self._pipeline.state_dict(all_ranks)}

    @torch.no_grad()
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Goes on from it. The model's weights are the script's to load."""
        self.inner.load_state_dict(state_dict["inner"])
        for name, each in zip(self._pipeline.named, self._before):
            each.copy_(state_dict["before"][name])
        self._pipeline.load_state_dict(state_dict["pipeline"])
