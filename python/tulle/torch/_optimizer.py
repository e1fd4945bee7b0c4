"""For scripts without DistributedDataParallel: an optimizer that sums gradients before its step."""
from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Callable

import torch

from .._gradient import Recipe, recipe_fields
from ._all_reduce import _CHECKS, like
from ._pipeline import Pipeline, chosen, sparse_names, trained
from ._tensors import Place
from ._takeover import TakeOver, take_over


class _Distributed:
    """What every optimizer that DistributedOptimizer() makes has beside its own methods."""

    _pipeline: Pipeline
    _taken: TakeOver
    _sparse: dict[str, torch.nn.Parameter]
    _is_synchronized: bool

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Sums the gradients, unless :meth:`synchronize` did, and makes the optimizer's step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not self._is_synchronized:
            self.synchronize()
        self._is_synchronized = False
        super().step()  # type: ignore[misc]
        return loss

    @torch.no_grad()
    def synchronize(self) -> None:
        """Replaces all gradients by their updates: for scripts that clip them before the step. All ranks must call it."""
        requests = {
            name: self._pipeline.start_sparse(place, _sparse_gradient(each))
            for place, (name, each) in enumerate(self._sparse.items())
        }
        parameters = list(self._pipeline.named.values())
        given: dict[int, torch.Tensor] = {}
        for number, parameter in enumerate(parameters):
            if parameter.grad is None:
                continue  # others may have one: what they sent becomes this rank's gradient
            if parameter.grad.is_sparse:
                name = list(self._pipeline.named)[number]
                raise TypeError(f"the gradient of {name} is sparse: pass the module, or its name in sparse=")
            decay = self._taken.weight_decay.get(id(parameter), 0)
            if decay:
                parameter.grad.add_(parameter, alpha=decay)
            given[number] = parameter.grad
        places = self._pipeline.places(given)
        needs_weights = self._taken.needs_weights
        self._pipeline.start([(n, place, parameters[n] if needs_weights else None) for n, place in places.items()])
        self._pipeline.end_step()
        self._finish(parameters, places)
        for name, request in requests.items():
            parameter = self._sparse[name]
            parameter.grad = like(_sparse_gradient(parameter), request.wait(), self._pipeline.comm.size)
        self._is_synchronized = True

    def _finish(self, parameters: list[torch.nn.Parameter], places: dict[int, Place]) -> None:
        missing = {number: torch.zeros_like(each) for number, each in enumerate(parameters) if number not in places}
        self._pipeline.finish({**places, **self._pipeline.places(missing)})
        for number, update in missing.items():
            if bool(update.any()):
                parameters[number].grad = update

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Inside, :meth:`step` takes gradients as they are."""
        before, self._is_synchronized = self._is_synchronized, True
        try:
            yield
        finally:
            self._is_synchronized = False if before else self._is_synchronized

    @property
    def recipe(self) -> str:
        """The recipe in use, as text."""
        return self._pipeline.synchronizer.recipe

    def plan(self) -> list[dict[str, Any]]:
        """How each parameter travels, why, and the bytes that are kept for it."""
        return self._pipeline.synchronizer.plan()

    def report(self) -> str:
        """One screen about all steps so far. All ranks must call it."""
        return f"{self._pipeline.synchronizer.report()}optimizer        {self._taken.note}\n"

    def pipeline_state_dict(self, all_ranks: bool = False) -> dict[str, Any]:
        """What the pipeline keeps, beside the optimizer's own state: as Handle.state_dict()."""
        return self._pipeline.state_dict(all_ranks)

    def load_pipeline_state_dict(self, state_dict: Any) -> None:
        """As Handle.load_state_dict()."""
        self._pipeline.load_state_dict(state_dict)


def _sparse_gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    """The gradient, or one without values where this rank has none: rows of the first dimension."""
    if parameter.grad is not None:
        return parameter.grad
    indices = torch.empty(1, 0, dtype=torch.int64)
    values = torch.empty(0, *parameter.shape[1:], dtype=parameter.dtype)
    return torch.sparse_coo_tensor(indices, values, parameter.shape, device=parameter.device, **_CHECKS)


def DistributedOptimizer(  # noqa: N802 -- Horovod's name
    optimizer: torch.optim.Optimizer,
    named_parameters: Any,
    recipe: Recipe = "topk:1%",
    *,
    sparse: Iterable[str] | None = None,
    group: Any = None,
    roles: Mapping[str, str] | None = None,
    **options: Any,
) -> Any:
    """The optimizer, which from now on sums gradients over all ranks before its step, by a recipe. All ranks must call
    it; weights must be equal then: see :func:`broadcast_parameters`.

    ``named_parameters`` are a module, or rows of (name, parameter); then ``sparse`` names those with sparse gradients,
    which are summed without a value lost. Momentum and weight decay move into the recipe where it wants them. The
    result is of the optimizer's class, too, so that schedulers take it. Give ``optimizer`` itself no more to do.

    >>> import torch, tulle
    >>> def function(comm):
    ...     layer = torch.nn.Linear(1, 1, bias=False)
    ...     torch.nn.init.zeros_(layer.weight)
    ...     optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    ...     optimizer = tulle.torch.DistributedOptimizer(optimizer, layer, "dense", group=comm)
    ...     layer(torch.full((1, 1), comm.rank + 1.0)).sum().backward()
    ...     optimizer.step()
    ...     return layer.weight.item()
    >>> tulle.threads(2, function)
    [-1.5, -1.5]
    """
    recipe = chosen(recipe)
    if recipe_fields(recipe)["every"] > 1:
        raise ValueError(f"recipe {recipe} has local steps: use tulle.torch.Local")
    named = trained(named_parameters)
    is_module = isinstance(named_parameters, torch.nn.Module)
    names = sparse_names(named_parameters) if is_module and sparse is None else set(sparse or ())
    if names - set(named):
        raise ValueError(f"sparse names {', '.join(sorted(names - set(named)))}, which get no gradients here")
    made = _with_class(optimizer)
    made._taken = take_over(recipe, optimizer)
    dense = {name: each for name, each in named.items() if name not in names}
    made._pipeline = Pipeline(dense, made._taken.recipe, group, roles, options)
    made._sparse = {name: named[name] for name in sorted(names)}
    made._is_synchronized = False
    return made


def _with_class(optimizer: torch.optim.Optimizer) -> Any:
    """The same optimizer, with the same state and groups, as one of a class that also is _Distributed."""
    kind = type(optimizer)
    made = object.__new__(type(f"Distributed{kind.__name__}", (_Distributed, kind), {}))
    made.__dict__ = optimizer.__dict__
    return made
