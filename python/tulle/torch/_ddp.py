"""One line for a script with DistributedDataParallel.

How it works. DDP hands over its gradients bucket by bucket, as back-propagation fills them, to a communication hook.
The hook starts the exchange of every parameter of the bucket, which then goes on by itself, on the library's progress
thread. When all parameters were seen the step ends; what is left, waiting and writing the updates into the buckets, is
queued for the end of the backward pass, before DDP looks at the results: so whatever else the pass computes comes first,
errors reach the caller of backward() with their type, and Ctrl-C works.

What DDP does differently at times, and what is done about it:
- Buckets are rebuilt after the first step, and may be in another order. State goes by the parameter's name.
- With find_unused_parameters or static_graph a parameter without a gradient comes as zeros, and where no rank has one
  DDP drops the update. Such a parameter is skipped: it keeps its residual for a step that uses it.
- A parameter that was frozen when DDP was made is in no bucket, and one that was frozen since is in one, with zeros. The
  first is an error where it gets gradients now, because nobody sums them; the second is left alone.
- Ranks that ran out of input (join()) call the hook outside of a backward pass, and static_graph calls it after the pass
  in the first step: then the hook itself waits.
- With a GradScaler gradients may be infinite, which is known when the last bucket is there: exchanges start then.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .._gradient import Recipe, recipe_fields
from ._all_reduce import infinite, like, replace
from ._pipeline import Pipeline, chosen, sparse_names, trained
from ._takeover import take_over
from ._tensors import Place, in_memory_order


class _Step:
    """What has come since the last update."""

    def __init__(self) -> None:
        self.seen = 0  #: parameters that were there at register()
        self.passed = 0  #: all of them, in the first step of a static graph
        self.results: list[tuple[torch.futures.Future, torch.Tensor]] = []  #: one for each bucket
        self.places: dict[int, Place] = {}  #: in the buckets, by the parameter's number
        self.skipped: set[int] = set()
        self.sparse: dict[int, torch.Tensor] = {}  #: a bucket of its own each
        self.requests: dict[int, Any] = {}
        self.error: BaseException | None = None


class Handle:
    """What :func:`register` gives: what the hook knows. Its methods belong between two steps."""

    def __init__(self, ddp: Any, recipe: Recipe, optimizer: Any, scaler: Any, roles: Any, options: Any) -> None:
        ignored = set(ddp.parameters_to_ignore)
        named = {name: each for name, each in trained(ddp.module).items() if name not in ignored}
        sparse = sparse_names(ddp.module) & set(named)
        self._taken = take_over(recipe, optimizer)
        dense = {name: each for name, each in named.items() if name not in sparse}
        self._pipeline = Pipeline(dense, self._taken.recipe, ddp.process_group, roles, options)
        self._names = {id(each): name for name, each in ddp.module.named_parameters()}
        self._sparse = {id(named[name]): number for number, name in enumerate(sorted(sparse))}
        self._expected = len(named)
        self._of_ddp = ddp._get_ddp_logging_data().get("num_parameter_tensors", self._expected)
        self._trained = {id(each) for each in named.values()}
        self._parameters = list(dense.values())
        # No handle of the model: DDP holds this, out of sight of the garbage collector.
        self._scaler, self._is_static = scaler, ddp.static_graph
        self._zeros_are_unused = ddp.find_unused_parameters or ddp.static_graph
        self._steps = self._skipped_steps = 0
        self._step = _Step()
        self._buckets: dict[int, dict[int, Place]] = {}  #: by the address of their memory

    # ------------------------------------------------------------ the hook

    def _on_bucket(self, bucket: Any) -> torch.futures.Future:
        step, buffer = self._step, bucket.buffer()
        future: torch.futures.Future = torch.futures.Future(devices=[buffer.device] if buffer.is_cuda else None)
        step.results.append((future, buffer))
        if step.error is not None:
            return future  # the end of the pass raises it
        is_over = False
        try:
            if len(step.results) == 1:
                self._taken.require()
            self._take(step, bucket, buffer)
            is_over = bucket.is_last() or self._is_last_of_static_graph(step, bucket)
            if is_over and step.seen != self._expected:
                self._raise_for_missing(step)
            if is_over and self._scaler is None:
                self._pipeline.end_step()
        except BaseException as error:  # from here torch 1.13 would make a RuntimeError of it
            step.error, is_over = error, True
        if is_over:
            self._later(self._finish)
        return future

    def _is_last_of_static_graph(self, step: _Step, bucket: Any) -> bool:
        """In the first step of a static graph DDP calls no bucket the last."""
        if not self._is_static or self._steps > 0:
            return False
        step.passed += len(bucket.parameters())
        return step.passed == self._of_ddp

    def _raise_for_missing(self, step: _Step) -> None:
        seen = {id(self._parameters[number]) for number in step.places}
        seen |= {identity for identity, number in self._sparse.items() if number in step.sparse}
        missing = self._trained - seen
        names = ", ".join(name for identity, name in self._names.items() if identity in missing)
        raise ValueError(
            f"DistributedDataParallel does not sum {names}: requires_grad was False when it was made. Freeze and unfreeze "
            "before DistributedDataParallel(), and register() again"
        )

    def _known(self, parameters: list[torch.Tensor]) -> list[bool]:
        """For each whether it was there at register(). Raises ValueError where it gets gradients only since then."""
        for each in parameters:
            if id(each) not in self._trained and each.requires_grad:
                name = self._names.get(id(each), "a parameter")
                raise ValueError(f"{name} had no requires_grad at register(): unfreeze it before")
        return [id(each) in self._trained for each in parameters]

    def _take(self, step: _Step, bucket: Any, buffer: torch.Tensor) -> None:
        if buffer.layout == torch.sparse_coo:
            parameters = bucket.parameters()
            if not all(self._known(parameters)):
                return
            number = self._sparse[id(parameters[0])]
            step.sparse[number] = buffer
            step.seen += 1
            if self._scaler is None:
                step.requests[number] = self._pipeline.start_sparse(number, buffer)
            return
        places = self._places_in(bucket, buffer)
        step.places.update(places)
        step.seen += len(places)
        if self._scaler is None:
            self._start(step, places)

    def _places_in(self, bucket: Any, buffer: torch.Tensor) -> dict[int, Place]:
        """Where a bucket's gradients are. DDP uses the memory of a bucket in every step, so that they are found once;
        they keep it alive, so that its address is nobody else's. A bucket that is new tells that DDP has dropped the
        others."""
        address = buffer.data_ptr()  # 0 where the bucket has no values
        if address and address in self._buckets:
            return self._buckets[address]
        seen = self._step.places.keys()
        self._buckets = {other: places for other, places in self._buckets.items() if places.keys() <= seen}
        parameters, number = bucket.parameters(), self._pipeline.number
        known = self._known(parameters)
        rows = zip(parameters, bucket.gradients(), known)
        found = self._pipeline.places({number[id(p)]: gradient for p, gradient, is_known in rows if is_known})
        if all(known):  # others may be unfrozen later
            self._buckets[address] = found
        return found

    def _start(self, step: _Step, places: Mapping[int, Place]) -> None:
        rows = []
        for number, place in places.items():
            if self._zeros_are_unused and not _has_values(place.tensor):
                step.skipped.add(number)
                continue
            parameter = self._parameters[number]
            decay = self._taken.weight_decay.get(id(parameter), 0)
            if decay:
                # In the order of memory: the shape of a bucket's gradient is not that of its memory.
                in_memory_order(place.tensor).add_(in_memory_order(parameter), alpha=decay)
            rows.append((number, place, parameter if self._taken.needs_weights else None))
        self._pipeline.start(rows)

    def _later(self, function: Any) -> None:
        """Calls the function when the backward pass is over, or now where nothing would call it in time."""
        if not (self._is_static and self._steps == 0):
            try:
                torch.autograd.Variable._execution_engine.queue_callback(function)
                return
            except RuntimeError:  # outside of a backward pass: a rank that has joined
                pass
        function()

    def _finish(self) -> None:
        step, self._step = self._step, _Step()
        if step.error is not None:
            raise step.error
        self._steps += 1
        if self._scaler is None:
            self._write_updates(step)
        else:
            self._finish_scaled(step)
        for future, buffer in step.results:
            future.set_result(buffer)

    def _write_updates(self, step: _Step) -> None:
        self._pipeline.finish(step.places)
        size = self._pipeline.comm.size
        for number, request in step.requests.items():
            tensor = step.sparse[number]
            replace(tensor, like(tensor, request.wait(), size))

    def _finish_scaled(self, step: _Step) -> None:
        """Gradients are scale times what they should be; residuals and momenta must not be."""
        tensors = [*(each.tensor for each in step.places.values()), *(each._values() for each in step.sparse.values())]
        is_finite = all(bool(torch.isfinite(each).all()) for each in tensors)
        if not self._pipeline.all_are(is_finite):
            # The scaler of every rank then finds it, skips the optimizer's step and lowers the scale.
            for place in step.places.values():
                place.tensor.fill_(float("inf"))
            for each in step.sparse.values():
                replace(each, infinite(each))
            self._skipped_steps += 1
            return
        scale = float(self._scaler.get_scale())
        whole = {number: each.tensor.float().div_(scale) for number, each in step.places.items()}
        results, step.places = step.places, self._pipeline.places(whole)
        self._start(step, step.places)
        self._pipeline.end_step()
        for number, tensor in step.sparse.items():
            step.requests[number] = self._pipeline.start_sparse(number, tensor)  # a sum, which is linear in the scale
        self._write_updates(step)
        for number, each in results.items():
            each.tensor.copy_(whole[number].mul_(scale))

    # ------------------------------------------------------------ what it tells

    @property
    def recipe(self) -> str:
        """The recipe in use, as text."""
        return self._pipeline.synchronizer.recipe

    def plan(self) -> list[dict[str, Any]]:
        """How each parameter travels, why, and the bytes that are kept for it.

        >>> handle.plan()[0]["how"]  # doctest: +SKIP
        'exact_top_k'
        """
        return self._pipeline.synchronizer.plan()

    def plan_text(self) -> str:
        """The same as a table to print.

        >>> print(handle.plan_text())  # doctest: +SKIP
        """
        total = sum(row["state_bytes"] for row in self.plan())
        return f"{self._pipeline.synchronizer.plan_text()}state kept on this rank: {total} bytes\n"

    def stats(self) -> dict[str, dict[str, Any]]:
        """What the last step of each parameter did on this rank, by name.

        >>> handle.stats()["0.weight"]["bytes_sent"]  # doctest: +SKIP
        6272
        """
        synchronizer = self._pipeline.synchronizer
        return {name: synchronizer.stats(name) for name in synchronizer.names}

    def report(self) -> str:
        """One screen about all steps so far, the same on all ranks. All ranks must call it.

        >>> print(handle.report())  # doctest: +SKIP
        """
        text = self._pipeline.synchronizer.report()
        skipped = f"not finite       {self._skipped_steps} steps were skipped\n" if self._skipped_steps else ""
        return f"{text}optimizer        {self._taken.note}\n{skipped}"

    def residual(self, name: str) -> torch.Tensor:
        """A copy of what waits for later steps of a parameter; empty where the recipe keeps nothing. Flat, in the order
        of the parameter's memory.

        >>> handle.residual("0.weight").norm()  # doctest: +SKIP
        tensor(0.2711)
        """
        return torch.from_numpy(self._pipeline.synchronizer.residual(name).copy())

    def state_dict(self, all_ranks: bool = False) -> dict[str, Any]:
        """What this rank keeps between steps: residuals, momenta, thresholds. Tensors and numbers only.

        Every rank saves its own. With ``all_ranks``, which all must call, each gets the states of all, for a checkpoint
        that one rank writes; that is as much memory as the model for each rank.

        >>> torch.save(handle.state_dict(), f"state.{rank}")  # doctest: +SKIP
        """
        return {**self._pipeline.state_dict(all_ranks), **self._taken.state_dict(self._parameters)}

    def load_state_dict(self, state_dict: Any) -> None:
        """Goes on from this rank's own state, or from those of all ranks, in one dict or a list of dicts: then also
        where their number was another one. Raises ValueError where the saved run had taken over another momentum or
        weight decay from its optimizer.

        >>> handle.load_state_dict(torch.load(f"state.{rank}"))  # doctest: +SKIP
        """
        self._taken.require_same(state_dict, self._parameters)
        self._pipeline.load_state_dict(state_dict)

    def __repr__(self) -> str:
        return f"Handle({self.recipe}, {self._expected} parameters, {self._pipeline.comm!r})"


def _has_values(gradient: torch.Tensor) -> bool:
    values = gradient.reshape(-1)
    return bool(values[:64].any()) or bool(values.any())


def _hook(handle, bucket):  # type: ignore[no-untyped-def]  # without annotations: DDP compares them
    return handle._on_bucket(bucket)


def register(
    ddp: torch.nn.parallel.DistributedDataParallel,
    recipe: Recipe = "topk:1%",
    *,
    optimizer: torch.optim.Optimizer | None = None,
    scaler: Any = None,
    roles: Mapping[str, str] | None = None,
    **options: Any,
) -> Handle:
    """Lets a model in DistributedDataParallel sum its gradients by a recipe. All ranks must call it, before the first
    step, and instead of another communication hook.

    ``optimizer`` hands over momentum, Nesterov and weight decay where the recipe wants them inside. ``scaler`` is a
    GradScaler: residuals are kept unscaled, and an infinity skips the step on all ranks. ``roles`` name parameters that
    are not what they look like: output, small, bias_or_norm or hidden. ``options`` are those of
    :class:`tulle.Synchronizer`. TULLE_RECIPE in the environment replaces the recipe.

    >>> import torch, tulle
    >>> model = torch.nn.parallel.DistributedDataParallel(model)  # doctest: +SKIP
    >>> handle = tulle.torch.register(model, "topk:1%", optimizer=optimizer)  # doctest: +SKIP
    """
    if not isinstance(ddp, torch.nn.parallel.DistributedDataParallel):
        raise TypeError(
            f"the model is a {type(ddp).__name__}: wrap it in DistributedDataParallel first, or use "
            "tulle.torch.DistributedOptimizer without"
        )
    recipe = chosen(recipe)
    if recipe_fields(recipe)["every"] > 1:
        raise ValueError(f"recipe {recipe} has local steps, in which DDP sums nothing: use tulle.torch.Local without DDP")
    handle = Handle(ddp, recipe, optimizer, scaler, roles, options)
    ddp.register_comm_hook(handle, _hook)
    handle._taken.apply()
    return handle
