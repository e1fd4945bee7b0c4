"""For models in fully_shard() (FSDP2): sums over replicas, in the place of the slow axis of a mesh."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed

from .._communicator import Communicator
from .._gradient import Recipe, SynchronizerOptions, recipe_fields, recipe_text
from ._meeting import Meeting
from ._pipeline import Pipeline, chosen
from ._takeover import take_over

if TYPE_CHECKING:
    from typing_extensions import Unpack


class _Hook:
    """Sums the gradients of one module of FSDP's: this rank's shard of all its parameters, one after the other."""

    def __init__(self, recipe: Recipe, comm: Communicator, options: Any) -> None:
        self._recipe, self._comm, self._options = recipe, comm, options
        self._pending: Any = None
        self.pipeline: Pipeline | None = None

    def __call__(self, gradient: torch.Tensor) -> None:
        if self.pipeline is None:  # all ranks come here in the same order: that of back-propagation
            named: Any = {"gradient": gradient}
            comm = self._comm.split(0)
            options = {**self._options, "weights_check_every": 0}  # this sees no weights
            self.pipeline = Pipeline(named, self._recipe, comm, {"gradient": "hidden"}, options)
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

    def plan(self) -> dict[str, dict[str, Any]]:
        """How the gradient of each module travels, why, and the bytes that are kept for it. There is none before the first
        step."""
        return {name: each.synchronizer.plan()[0] for name, each in self._made().items()}

    def plan_text(self) -> str:
        """The same as tables to print."""
        return "\n".join(f"module           {name}\n{each.synchronizer.plan_text()}" for name, each in self._made().items())

    def stats(self) -> dict[str, dict[str, Any]]:
        """What the last step of each module did on this rank."""
        return {name: each.synchronizer.stats("gradient") for name, each in self._made().items()}

    def state_dict(self) -> dict[str, Any]:
        """What this rank keeps between steps. There is none before the first step."""
        return {name: each.state_dict() for name, each in self._made().items()}

    def load_state_dict(self, state_dict: Any) -> None:
        """Goes on from this rank's own state, on as many replicas and shards; also before the first step."""
        for name, state in state_dict.items():
            if name not in self._hooks:
                raise ValueError(f"no module in fully_shard() is called '{name}'; there are {', '.join(self._hooks)}")
            self._hooks[name].load_state_dict(state)


def fsdp_hook(
    model: torch.nn.Module, recipe: Recipe = "topk:1%", *, group: Any, **options: Unpack[SynchronizerOptions]
) -> FsdpHandle:
    """Lets a model in fully_shard() over the shard axis of a mesh sum its gradients over the replicate axis by a recipe.

    ``group`` is the process group of that axis, ``mesh["replicate"].get_group()``: ranks that have the same shards. To the
    recipe the gradients of a module are one vector, so that powersgd is refused. Recipes with momentum inside want an
    optimizer without. Wants a torch that has set_all_reduce_hook; tested with 2.13. All ranks must call it.

    >>> mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))  # doctest: +SKIP
    >>> fully_shard(model, mesh=mesh["shard"])  # doctest: +SKIP
    >>> handle = tulle.torch.fsdp_hook(model, "topk:1%", group=mesh["replicate"].get_group())  # doctest: +SKIP
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"a {type(model).__name__} is no model: pass the one that is in fully_shard()")
    if group is None:
        raise TypeError(
            'group is None, and the default group has ranks with different shards: give mesh["replicate"].get_group(), the '
            "ranks that have the same ones"
        )
    meeting = Meeting(group, options)
    modules = meeting.prepare(lambda: _prepared(model, chosen(recipe), group))
    meeting.agree({"the call": "tulle.torch.fsdp_hook()", "recipe": recipe_text(chosen(recipe)), "modules": ", ".join(modules)})
    comm = meeting.members()
    hooks = {name: _Hook(chosen(recipe), comm, options) for name in modules}
    for name, module in modules.items():
        module.set_all_reduce_hook(hooks[name])
    return FsdpHandle(hooks)


def _prepared(model: torch.nn.Module, recipe: Recipe, group: Any) -> dict[str, Any]:
    """The modules that are in fully_shard(), by name."""
    fields = recipe_fields(recipe)
    if fields["every"] > 1:
        raise ValueError(f"recipe {recipe} has local steps: use tulle.torch.Local")
    if fields["exchange"] == "low_rank":
        raise ValueError(f"recipe {recipe} sends factors of matrices, and fully_shard() has shards of vectors: use another")
    take_over(recipe, None, {}, [])  # warns where momentum would be applied twice
    modules = {name: each for name, each in model.named_modules() if hasattr(each, "set_all_reduce_hook")}
    if not modules:
        raise ValueError("no module of the model is in fully_shard() of a torch that has set_all_reduce_hook")
    replicas = _global_ranks(group)
    for name, parameter in model.named_parameters():
        _require_sharded_only(name, parameter, replicas)
    return modules


def _global_ranks(group: Any) -> set[int]:
    distributed = torch.distributed
    return {distributed.get_global_rank(group, rank) for rank in range(distributed.get_world_size(group))}


def _require_sharded_only(name: str, parameter: Any, replicas: set[int]) -> None:
    """Raises ValueError unless each rank of the group has the same shard as this one and sums its own gradient only."""
    if not hasattr(parameter, "device_mesh"):
        return
    mesh = parameter.device_mesh
    if any(each.is_replicate() for each in parameter.placements):
        raise ValueError(
            f"fully_shard() has {name} on a mesh of {mesh.ndim} axes with replicas, and sums over them by itself: call "
            'fully_shard(model, mesh=mesh["shard"]), and tulle.torch.fsdp_hook() sums over the other axis'
        )
    others = (replicas & set(mesh.mesh.flatten().tolist())) - {torch.distributed.get_rank()}
    if others:
        raise ValueError(
            f"rank {min(others)} of the group has another shard of {name} than this rank: give the group of ranks that have "
            'the same ones, mesh["replicate"].get_group()'
        )
