"""For models in fully_shard() (FSDP2): sums over replicas, in the place of the slow axis of a mesh."""
from __future__ import annotations

from typing import Any

import torch

from .._gradient import Recipe, recipe_fields
from ._pipeline import Pipeline, chosen
from ._takeover import take_over


class _Hook:
    """Sums the gradients of one module of FSDP's: this rank's shard of all its parameters, one after the other."""

    def __init__(self, recipe: Recipe, group: Any, options: Any) -> None:
        self._recipe, self._group, self._options = recipe, group, options
        self._pending: Any = None
        self.pipeline: Pipeline | None = None

    def __call__(self, gradient: torch.Tensor) -> None:
        if self.pipeline is None:  # all ranks come here in the same order: that of back-propagation
            named: Any = {"gradient": gradient}
            self.pipeline = Pipeline(named, self._recipe, self._group, {"gradient": "hidden"}, self._options)
            if self._pending is not None:
                self.pipeline.load_state_dict(self._pending)
        places = self.pipeline.places({0: gradient})
        self.pipeline.start([(0, places[0], None)])
        self.pipeline.end_step()
        self.pipeline.finish(places)

    def load_state_dict(self, state_dict: Any) -> None:
        if self.pipeline is None:
            self._pending = state_dict
        else:
            self.pipeline.load_state_dict(state_dict)


class FsdpHandle:
    """What :func:`fsdp_hook` gives. Modules go by their names."""

    def __init__(self, hooks: dict[str, _Hook]) -> None:
        self._hooks = hooks

    def _made(self) -> dict[str, Pipeline]:
        return {name: each.pipeline for name, each in self._hooks.items() if each.pipeline is not None}

    def report(self) -> str:
        """A screen for each module. All ranks must call it."""
        return "\n".join(f"module           {name}\n{each.synchronizer.report()}" for name, each in self._made().items())

    def stats(self) -> dict[str, dict[str, Any]]:
        """What the last step of each module did on this rank."""
        return {name: each.synchronizer.stats("gradient") for name, each in self._made().items()}

    def state_dict(self) -> dict[str, Any]:
        """What this rank keeps between steps. There is none before the first step."""
        return {name: each.state_dict() for name, each in self._made().items()}

    def load_state_dict(self, state_dict: Any) -> None:
        """Goes on from this rank's own state, on as many replicas and shards; also before the first step."""
        for name, state in state_dict.items():
            self._hooks[name].load_state_dict(state)


def fsdp_hook(model: torch.nn.Module, recipe: Recipe = "topk:1%", *, group: Any, **options: Any) -> FsdpHandle:
    """Lets a model in fully_shard() over the shard axis of a mesh sum its gradients over the replicate axis by a recipe.

    ``group`` is the process group of that axis, ``mesh["replicate"].get_group()``. Recipes with momentum inside want an
    optimizer without. Wants a torch that has set_all_reduce_hook; tested with 2.13. All ranks must call it.

    >>> mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))  # doctest: +SKIP
    >>> fully_shard(model, mesh=mesh["shard"])  # doctest: +SKIP
    >>> handle = tulle.torch.fsdp_hook(model, "topk:1%", group=mesh["replicate"].get_group())  # doctest: +SKIP
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"a {type(model).__name__} is no model: pass the one that is in fully_shard()")
    recipe = chosen(recipe)
    if recipe_fields(recipe)["every"] > 1:
        raise ValueError(f"recipe {recipe} has local steps: use tulle.torch.Local")
    take_over(recipe, None)  # warns where momentum would be applied twice
    hooks: dict[str, _Hook] = {}
    for name, module in model.named_modules():
        if hasattr(module, "set_all_reduce_hook"):
            hooks[name] = _Hook(recipe, group, options)
            module.set_all_reduce_hook(hooks[name])
    if not hooks:
        raise ValueError("no module of the model is in fully_shard() of a torch that has set_all_reduce_hook")
    return FsdpHandle(hooks)
