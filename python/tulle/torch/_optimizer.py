"""For scripts without DistributedDataParallel: an optimizer that sums gradients before its step."""
from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Callable

import torch

from .._collectives import Request
from .._gradient import Recipe, SynchronizerOptions, recipe_fields
from .._stream import Stream
from ._all_reduce import _CHECKS, infinite, like
from ._clip import require_max_norm, scale_down
from ._meeting import Meeting
from ._pipeline import Pipeline, chosen, require_scaler, require_types, sparse_names, synchronizer_rows, trained
from ._takeover import TakeOver, take_over
from ._tensors import Place, ordered_as

if TYPE_CHECKING:
    from typing_extensions import Unpack


class _Distributed:
    """What every optimizer that DistributedOptimizer() makes has beside its own methods."""

    _pipeline: Pipeline
    _taken: TakeOver
    _sparse: dict[str, torch.nn.Parameter]
    _scaler: Any
    _max_norm: float | None
    _own_step: Callable[[], Any] | None  #: of a scheduler that was there first, which counts
    _is_synchronized: bool  #: gradients are updates
    _skips: bool  #: inside of skip_synchronize()
    _skipped_steps: int

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Sums the gradients, unless :meth:`synchronize` did, and makes the optimizer's step."""
        loss = None
        if closure is not None:
            self._is_synchronized = False  # gradients are the closure's now
            with torch.enable_grad():
                loss = closure()
        if not (self._is_synchronized or self._skips):
            self._require_no_scaler()
            self.synchronize()
        if not self._skips:
            self._taken.require_delivered(self)
        self._taken.forget_delivered()
        self._is_synchronized = False
        self._own_step() if self._own_step is not None else super().step()  # type: ignore[misc]
        return loss

    def _require_no_scaler(self) -> None:
        if self._scaler is not None:  # it has looked at this rank's gradients alone; others may not come here
            raise RuntimeError("with a scaler call optimizer.synchronize() after backward(), before scaler.step(optimizer)")

    def zero_grad(self, *arguments: Any, **named: Any) -> None:
        """The optimizer's."""
        self._is_synchronized = False
        super().zero_grad(*arguments, **named)  # type: ignore[misc]

    def add_param_group(self, param_group: Any) -> None:
        """Refused: ranks agree on the parameters when this is made."""
        raise ValueError("parameters that are added later would not be summed: add them before DistributedOptimizer()")

    @torch.no_grad()
    def synchronize(self) -> None:
        """Replaces all gradients by their updates: for scripts that clip them before the step, and for those with a
        scaler. All ranks must call it."""
        with self._pipeline.step():
            self._taken.require()
            self._require_known()
            if self._scaler is None or self._pipeline.all_are(self._is_finite()):
                self._exchange(1.0 if self._scaler is None else float(self._scaler.get_scale()))
            else:
                self._fill_with_infinity()
        self._is_synchronized = True

    def _exchange(self, scale: float) -> None:
        """Gradients are scale times what they should be; residuals and momenta must not be."""
        parameters = list(self._pipeline.named.values())
        self._pipeline.compare_weights(parameters)
        used = self._pipeline.start_used([each.grad is not None for each in parameters])
        given: dict[int, torch.Tensor] = {}
        for number, parameter in enumerate(parameters):
            if parameter.grad is None:
                continue  # others may have one: what they sent becomes this rank's gradient
            parameter.grad = ordered_as(parameter.grad, parameter)
            given[number] = parameter.grad if scale == 1 else parameter.grad.float().div_(scale)
        self._clip(list(given.values()), scale)
        for number, gradient in given.items():
            decay = self._taken.weight_decay.get(id(parameters[number]), 0)
            if decay:
                gradient.add_(parameters[number], alpha=decay)
        requests = {
            name: self._pipeline.start_sparse(place, _sparse_gradient(each))
            for place, (name, each) in enumerate(self._sparse.items())
        }
        places = self._pipeline.places(given)
        needs_weights = self._taken.needs_weights
        self._pipeline.start([(n, place, parameters[n] if needs_weights else None) for n, place in places.items()])
        self._pipeline.end_step()
        self._finish(parameters, places, scale, used)
        for name, request in requests.items():
            parameter = self._sparse[name]  # a sum, which is linear in the scale
            parameter.grad = like(_sparse_gradient(parameter), request.wait(), self._pipeline.comm.size)
        self._deliver(scale)

    def _clip(self, dense: list[torch.Tensor], scale: float) -> None:
        sparse = [each.grad for each in self._sparse.values() if each.grad is not None]
        scale_down(dense, sparse, self._max_norm, scale)

    def _deliver(self, scale: float) -> None:
        norms = None
        if self._scaler is not None and self._taken.optimizers:
            named = self._pipeline.named.items()
            norms = {name: 0.0 if each.grad is None else float(each.grad.float().norm()) / scale for name, each in named}
        self._taken.deliver(self._pipeline.named, norms)

    def _finish(
        self, parameters: list[torch.nn.Parameter], places: dict[int, Place], scale: float, used: Request[Stream]
    ) -> None:
        missing = {number: torch.zeros_like(each) for number, each in enumerate(parameters) if number not in places}
        self._pipeline.finish({**places, **self._pipeline.places(missing)})
        if scale != 1:
            for number, place in places.items():
                parameters[number].grad.copy_(place.tensor.mul_(scale))  # type: ignore[union-attr]
        # Zeros too, where another rank has them: an optimizer's step is not the same with zeros as without a gradient.
        ranks_with_one = used.wait().to_dense()
        for number, update in missing.items():
            if ranks_with_one[number] or bool(update.any()):
                parameters[number].grad = update.mul_(scale)

    def _require_known(self) -> None:
        """Raises for gradients that nobody would sum, or not as they are."""
        known = self._pipeline.number.keys() | {id(each) for each in self._sparse.values()}
        for group in self.param_groups:  # type: ignore[attr-defined]
            for each in group["params"]:
                if each.grad is not None and id(each) not in known:
                    raise ValueError(
                        f"a parameter of shape {tuple(each.shape)} has a gradient and was not there, or had no requires_grad, "
                        "at DistributedOptimizer(): unfreeze or add it before"
                    )
        for name, each in self._pipeline.named.items():
            if each.grad is not None and each.grad.is_sparse:
                raise TypeError(f"the gradient of {name} is sparse: pass the module, or its name in sparse=")
        for name, each in self._sparse.items():
            if each.grad is not None and not each.grad.is_sparse:
                raise TypeError(f"the gradient of {name} is dense: leave its name out of sparse=")

    def _is_finite(self) -> bool:
        parameters = (*self._pipeline.named.values(), *self._sparse.values())
        gradients = [each.grad for each in parameters if each.grad is not None]
        values = [each._values() if each.is_sparse else each for each in gradients]
        return all(bool(torch.isfinite(each).all()) for each in values)

    def _fill_with_infinity(self) -> None:
        """The scaler of every rank then finds it, skips the step and lowers the scale."""
        for parameter in self._pipeline.named.values():
            parameter.grad = torch.full_like(parameter, float("inf"))
        for parameter in self._sparse.values():
            parameter.grad = infinite(_sparse_gradient(parameter))
        self._skipped_steps += 1

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Inside, :meth:`step` takes gradients as they are."""
        before, self._skips = self._skips, True
        try:
            yield
        finally:
            self._skips = before

    @property
    def recipe(self) -> str:
        """The recipe in use, as text."""
        return self._pipeline.synchronizer.recipe

    def plan(self) -> list[dict[str, Any]]:
        """How each parameter travels, why, and the bytes that are kept for it."""
        return self._pipeline.synchronizer.plan()

    def report(self) -> str:
        """One screen about all steps so far. All ranks must call it."""
        skipped = f"not finite       {self._skipped_steps} steps were skipped\n" if self._skipped_steps else ""
        return f"{self._pipeline.synchronizer.report()}optimizer        {self._taken.note}\n{skipped}"

    def pipeline_state_dict(self, all_ranks: bool = False) -> dict[str, Any]:
        """What the pipeline keeps, beside the optimizer's own state: as Handle.state_dict()."""
        return {**self._pipeline.state_dict(all_ranks), **self._taken.state_dict(self._pipeline.named.values())}

    def load_pipeline_state_dict(self, state_dict: Any) -> None:
        """As Handle.load_state_dict()."""
        self._taken.require_same(state_dict, self._pipeline.named.values())
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
    scaler: Any = None,
    max_norm: float | None = None,
    group: Any = None,
    roles: Mapping[str, str] | None = None,
    **options: Unpack[SynchronizerOptions],
) -> Any:
    """The optimizer, which from now on sums gradients over all ranks before its step, by a recipe. All ranks must call
    it; weights must be equal then: see :func:`broadcast_parameters`.

    ``named_parameters`` are a module, or rows of (name, parameter); then ``sparse`` names those with sparse gradients,
    which are summed without a value lost. Momentum and weight decay move into the recipe where it wants them. With a
    GradScaler give ``scaler``, and call ``synchronize()`` before ``scaler.step()``: an infinity then skips the step on all
    ranks. ``max_norm`` bounds the norm of each rank's gradient, of all parameters, before it is accumulated. The result is
    of the optimizer's class, too, so that schedulers take it; those that ``optimizer`` has already go on. Give
    ``optimizer`` itself no more to do.

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
    meeting = Meeting(group, options)
    plan = meeting.prepare(lambda: _Plan(optimizer, named_parameters, recipe, sparse, roles, scaler, max_norm))
    meeting.agree(plan.settings(scaler, max_norm))
    pipeline = Pipeline(plan.dense, plan.taken.recipe, meeting.members(), roles, options)
    # From here on nothing fails, and the optimizer may be changed.
    made = _with_class(optimizer)
    made._taken, made._pipeline, made._scaler, made._max_norm = plan.taken, pipeline, scaler, max_norm
    made._sparse = {name: plan.named[name] for name in sorted(plan.sparse)}
    made._is_synchronized, made._skips, made._skipped_steps = False, False, 0
    plan.taken.watch(made)
    plan.taken.apply()
    return made


class _Plan:
    """What a rank finds out about an optimizer before it talks to the others."""

    def __init__(
        self, optimizer: Any, named_parameters: Any, recipe: Recipe, sparse: Any, roles: Any, scaler: Any,
        max_norm: float | None,
    ) -> None:  # fmt: skip
        recipe = chosen(recipe)
        require_max_norm(max_norm)
        require_scaler(scaler)
        if recipe_fields(recipe)["every"] > 1:
            raise ValueError(f"recipe {recipe} has local steps: use tulle.torch.Local")
        _require_optimizer(optimizer)
        self.named = trained(named_parameters)
        is_module = isinstance(named_parameters, torch.nn.Module)
        self.sparse = sparse_names(named_parameters) if is_module and sparse is None else set(sparse or ())
        if self.sparse - set(self.named):
            raise ValueError(f"sparse names {', '.join(sorted(self.sparse - set(self.named)))}, which get no gradients here")
        _require_named(optimizer, self.named)
        self.dense = {name: each for name, each in self.named.items() if name not in self.sparse}
        require_types(self.dense)
        synchronizer_rows(self.dense, roles or {})
        self.taken = take_over(recipe, optimizer, self.named, self.dense.values())

    def settings(self, scaler: Any, max_norm: float | None) -> dict[str, Any]:
        return {
            "the call": "tulle.torch.DistributedOptimizer()",
            "scaler": "not given" if scaler is None else "given",
            "max_norm": max_norm,
            "optimizer": self.taken.note,
            "parameters with sparse gradients": ", ".join(sorted(self.sparse)),
        }


def _require_optimizer(optimizer: Any) -> None:
    if isinstance(optimizer, _Distributed):
        raise TypeError("the optimizer is a DistributedOptimizer already: gradients would be summed twice")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"a {type(optimizer).__name__} is no optimizer of torch's: pass torch.optim.SGD(...), for example")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise TypeError("LBFGS computes gradients within its step, which ranks do not sum: use another optimizer")


def _require_named(optimizer: torch.optim.Optimizer, named: Mapping[str, torch.nn.Parameter]) -> None:
    known = {id(each) for each in named.values()}
    for group in optimizer.param_groups:
        for each in group["params"]:
            if each.requires_grad and id(each) not in known:
                shape = tuple(each.shape)
                raise ValueError(
                    f"the optimizer has a parameter of shape {shape} that named_parameters do not name, so that it would "
                    "not be summed: pass the whole module, or rows for all of them"
                )


def _with_class(optimizer: torch.optim.Optimizer) -> Any:
    """The same optimizer, with the same state and groups, as one of a class that also is _Distributed."""
    kind = type(optimizer)
    made = object.__new__(type(f"Distributed{kind.__name__}", (_Distributed, kind), {}))
    made.__dict__ = optimizer.__dict__
    # A scheduler has put a step of its own there, which counts and would be found before the class's.
    made._own_step = made.__dict__.pop("step", None)
    if made._own_step is not None:
        made.step = _marked(made, made._own_step)
    return made


def _marked(made: Any, own: Any) -> Callable[..., Any]:
    """The step of the class with the marks by which schedulers know that they have been here."""

    def step(closure: Callable[[], Any] | None = None) -> Any:
        return type(made).step(made, closure)

    step.__dict__.update({name: value for name, value in own.__dict__.items() if name != "__wrapped__"})
    return step
