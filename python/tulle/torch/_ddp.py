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
- A parameter that was frozen when DDP was made, or was added since, is in no bucket, and one that was frozen since is in
  one, with zeros. The first two are an error where they get gradients now, because nobody sums them; the last is left alone.
- Ranks that ran out of input (join()) call the hook outside of a backward pass, and static_graph calls it after the pass
  in the first step: then the hook itself waits.
- With a GradScaler gradients may be infinite, which is known when the last bucket is there, and so is the norm of all of
  them: exchanges start then.
"""
from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from .._communicator import Communicator
from .._gradient import Recipe, SynchronizerOptions, recipe_fields
from ._all_reduce import infinite, like, replace
from ._clip import require_max_norm, scale_down
from ._meeting import Meeting
from ._pipeline import Pipeline, chosen, require_scaler, require_types, sparse_names, synchronizer_rows, trained
from ._takeover import Optimizers, take_over
from ._tensors import Place, in_memory_order

if TYPE_CHECKING:
    from typing_extensions import Unpack


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


class _Plan:
    """What a rank finds out about a model before it talks to the others."""

    def __init__(self, ddp: Any, recipe: Recipe, optimizer: Any, roles: Any, scaler: Any, max_norm: float | None) -> None:
        recipe = chosen(recipe)
        require_max_norm(max_norm)
        require_scaler(scaler)
        if recipe_fields(recipe)["every"] > 1:
            raise ValueError(f"recipe {recipe} has local steps, in which DDP sums nothing: use tulle.torch.Local without DDP")
        ignored = set(ddp.parameters_to_ignore)
        self.named = {name: each for name, each in trained(ddp.module).items() if name not in ignored}
        self.sparse = sparse_names(ddp.module) & set(self.named)
        self.dense = {name: each for name, each in self.named.items() if name not in self.sparse}
        require_types(self.dense)
        synchronizer_rows(self.dense, roles or {})
        self.taken = take_over(recipe, optimizer, self.named, self.dense.values())

    def settings(self, ddp: Any, scaler: Any, max_norm: float | None) -> dict[str, Any]:
        return {
            "the call": "tulle.torch.register()",
            "scaler": "not given" if scaler is None else "given",
            "max_norm": max_norm,
            "optimizer": self.taken.note,
            "find_unused_parameters": bool(ddp.find_unused_parameters),
            "static_graph": bool(ddp.static_graph),
            "parameters with sparse gradients": ", ".join(sorted(self.sparse)),
        }


class Handle:
    """What :func:`register` gives: what the hook knows. Its methods belong between two steps."""

    def __init__(
        self, ddp: Any, plan: _Plan, comm: Communicator, scaler: Any, max_norm: float | None, roles: Any, options: Any
    ) -> None:
        self._taken = plan.taken
        self._pipeline = Pipeline(plan.dense, plan.taken.recipe, comm, roles, options)
        self._sparse = {id(plan.named[name]): number for number, name in enumerate(sorted(plan.sparse))}
        self._expected = len(plan.named)
        self._of_ddp = ddp._get_ddp_logging_data().get("num_parameter_tensors", self._expected)
        self._named = plan.named
        self._trained = {id(each) for each in plan.named.values()}
        self._ignored: dict[int, torch.Tensor] = {}
        self._ignored_names = set(ddp.parameters_to_ignore)
        self._parameters = list(plan.dense.values())
        # No handle of the model: DDP holds this, out of sight of the garbage collector.
        self._ddp, self._model = weakref.ref(ddp), weakref.ref(ddp.module)
        self._scaler, self._max_norm, self._is_static = scaler, max_norm, ddp.static_graph
        self._starts_late = scaler is not None or max_norm is not None
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
                if not self._starts_late:
                    self._compare_weights()
            self._take(step, bucket, buffer)
            is_over = bucket.is_last() or self._is_last_of_static_graph(step, bucket)
            if is_over and step.seen != self._expected:
                self._raise_for_missing(step)
            if is_over and not self._starts_late:
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
        names = ", ".join(name for name, each in self._named.items() if id(each) in missing)
        raise ValueError(
            f"DistributedDataParallel does not sum {names}: requires_grad was False when it was made. Freeze and unfreeze "
            "before DistributedDataParallel(), and register() again"
        )

    def _before_forward(self) -> None:
        """Raises ValueError where a parameter is trained that nobody sums: DDP looks at the model when it is made. Not in
        the hook, which is not called at all where a parameter is missing that DDP waits for."""
        if torch.is_grad_enabled():
            with self._pipeline.step():
                self._require_same_model()

    def _require_same_model(self) -> None:
        for each in _parameters_of(self._model()):
            if each.requires_grad and id(each) not in self._trained and id(each) not in self._ignored:
                self._look_at_new(each)

    def _look_at_new(self, parameter: torch.Tensor) -> None:
        model = self._model()
        names = [name for name, each in model.named_parameters() if each is parameter] if model is not None else []
        if names and names[0] in self._ignored_names:
            self._ignored[id(parameter)] = parameter
            return
        raise ValueError(
            f"{names[0] if names else 'a parameter'} had no requires_grad, or was not there, at register(), so that ranks do "
            "not sum its gradients: add, replace and unfreeze parameters before DistributedDataParallel(), and register() again"
        )

    def _known(self, parameters: list[torch.Tensor]) -> list[bool]:
        """For each whether it was there at register()."""
        return [id(each) in self._trained for each in parameters]

    def _take(self, step: _Step, bucket: Any, buffer: torch.Tensor) -> None:
        if buffer.layout == torch.sparse_coo:
            parameters = bucket.parameters()
            if not all(self._known(parameters)):
                return
            number = self._sparse[id(parameters[0])]
            step.sparse[number] = buffer
            step.seen += 1
            if not self._starts_late:
                step.requests[number] = self._pipeline.start_sparse(number, buffer)
            return
        places = self._places_in(bucket, buffer)
        step.places.update(places)
        step.seen += len(places)
        if not self._starts_late:
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
        with self._pipeline.step():
            if step.error is not None:
                raise step.error
            self._steps += 1
            norms = self._update(step)
        for future, buffer in step.results:
            future.set_result(buffer)
        if not (self._is_static and self._steps == 1):  # DDP copies them into gradients, and then comes what is queued now
            self._later(lambda: self._taken.deliver(self._pipeline.named, norms))

    def _update(self, step: _Step) -> dict[str, float] | None:
        """Replaces gradients by their updates, and gives the norms of those that a scaler will change."""
        if self._scaler is not None:
            return self._finish_scaled(step)
        if self._max_norm is not None:
            self._start_clipped(step)
        self._write_updates(step)
        return None

    def _start_clipped(self, step: _Step) -> None:
        scale_down([each.tensor for each in step.places.values()], list(step.sparse.values()), self._max_norm)
        self._start_all(step)

    def _compare_weights(self) -> None:
        join = getattr(self._ddp(), "_join_config", None)
        if not (join is not None and join.enable):  # ranks that ran out of input make no steps
            self._pipeline.compare_weights(self._parameters)

    def _start_all(self, step: _Step) -> None:
        self._compare_weights()
        self._start(step, step.places)
        self._pipeline.end_step()
        for number, tensor in step.sparse.items():
            step.requests[number] = self._pipeline.start_sparse(number, tensor)

    def _write_updates(self, step: _Step) -> None:
        self._pipeline.finish(step.places)
        size = self._pipeline.comm.size
        for number, request in step.requests.items():
            tensor = step.sparse[number]
            replace(tensor, like(tensor, request.wait(), size))

    def _finish_scaled(self, step: _Step) -> dict[str, float] | None:
        """Gradients are scale times what they should be; residuals and momenta must not be. Gives the norms of updates
        that have momentum inside."""
        tensors = [*(each.tensor for each in step.places.values()), *(each._values() for each in step.sparse.values())]
        is_finite = all(bool(torch.isfinite(each).all()) for each in tensors)
        if not self._pipeline.all_are(is_finite):
            # The scaler of every rank then finds it, skips the optimizer's step and lowers the scale.
            for place in step.places.values():
                place.tensor.fill_(float("inf"))
            for gradient in step.sparse.values():
                replace(gradient, infinite(gradient))
            self._skipped_steps += 1
            return None
        scale = float(self._scaler.get_scale())
        whole = {number: each.tensor.float().div_(scale) for number, each in step.places.items()}
        results, step.places = step.places, self._pipeline.places(whole)
        if self._max_norm is not None:
            scale_down(list(whole.values()), list(step.sparse.values()), self._max_norm, scale)
        self._start_all(step)  # sums of sparse gradients are linear in the scale
        self._write_updates(step)
        names = list(self._pipeline.named)
        norms = {names[number]: float(each.norm()) for number, each in whole.items()} if self._taken.optimizers else None
        for number, place in results.items():
            place.tensor.copy_(whole[number].mul_(scale))
        return norms

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
        buffers = _core.cached_bytes()
        return (
            f"{self._pipeline.synchronizer.plan_text()}state kept on this rank: {total} bytes\n"
            f"buffers of past exchanges, for the next ones: {buffers} bytes in this process\n"
        )

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

    def of_all_ranks(self) -> OfAllRanks:
        """The handle for checkpoints that one rank writes and all ranks load, as accelerate's.

        >>> accelerator.register_for_checkpointing(handle.of_all_ranks())  # doctest: +SKIP
        """
        return OfAllRanks(self)

    def __reduce__(self) -> Any:
        raise TypeError("a handle is of this process, and is not copied or pickled: save what handle.state_dict() gives")

    def __repr__(self) -> str:
        return f"Handle({self.recipe}, {self._expected} parameters, {self._pipeline.comm!r})"


class OfAllRanks:
    """What :meth:`Handle.of_all_ranks` gives. All ranks must call its methods."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def state_dict(self) -> dict[str, Any]:
        """What all ranks keep between steps."""
        return self._handle.state_dict(all_ranks=True)

    def load_state_dict(self, state_dict: Any) -> None:
        """Goes on from it, on any number of ranks."""
        self._handle.load_state_dict(state_dict)


def _parameters_of(model: torch.nn.Module | None) -> Iterator[torch.Tensor]:
    """As model.parameters(), which takes several times as long, and some twice."""
    modules = [model]
    while modules:
        each = modules.pop()
        if each is not None:
            yield from (parameter for parameter in each._parameters.values() if parameter is not None)
            modules.extend(each._modules.values())


def _has_values(gradient: torch.Tensor) -> bool:
    values = gradient.reshape(-1)
    return bool(values[:64].any()) or bool(values.any())


class _Hooks:
    """What DDP has of a handle. A copy of the model has none, and sums as DDP does, until it is registered."""

    def __init__(self, handle: Handle | None = None) -> None:
        self.handle = handle

    def __call__(self, *_: Any) -> None:
        """Before the forward pass."""
        if self.handle is not None:
            self.handle._before_forward()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return _Hooks, ()


def _hook(hooks, bucket):  # type: ignore[no-untyped-def]  # without annotations: DDP compares them
    return hooks.handle._on_bucket(bucket)


def register(
    ddp: torch.nn.parallel.DistributedDataParallel,
    recipe: Recipe = "topk:1%",
    *,
    optimizer: Optimizers = None,
    scaler: Any = None,
    max_norm: float | None = None,
    roles: Mapping[str, str] | None = None,
    **options: Unpack[SynchronizerOptions],
) -> Handle:
    """Lets a model in DistributedDataParallel sum its gradients by a recipe. All ranks must call it, before the first
    step, and instead of another communication hook.

    ``optimizer`` hands over momentum, Nesterov and weight decay where the recipe wants them inside; where several
    optimizers make the model's steps, give a list. ``scaler`` is a GradScaler: residuals are kept unscaled, and an
    infinity skips the step on all ranks. ``max_norm`` bounds the norm of each rank's gradient, of all parameters, before
    it is accumulated. ``roles`` name parameters that are not what they look like: output, small, bias_or_norm or hidden.
    ``options`` are those of :class:`tulle.Synchronizer`. TULLE_RECIPE in the environment replaces the recipe.

    >>> import torch, tulle
    >>> model = torch.nn.parallel.DistributedDataParallel(model)  # doctest: +SKIP
    >>> handle = tulle.torch.register(model, "topk:1%", optimizer=optimizer)  # doctest: +SKIP
    """
    _require_ddp(ddp)
    meeting = Meeting(ddp.process_group, options)
    plan = meeting.prepare(lambda: _Plan(ddp, recipe, optimizer, roles, scaler, max_norm))
    meeting.agree(plan.settings(ddp, scaler, max_norm))
    handle = Handle(ddp, plan, meeting.members(), scaler, max_norm, roles, options)
    hooks = _Hooks(handle)
    ddp.register_comm_hook(hooks, _hook)
    ddp.register_forward_pre_hook(hooks)
    handle._taken.apply()
    handle._taken.look_at_steps()
    return handle


def _require_ddp(model: Any) -> None:
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        return
    names = {each.__name__ for each in type(model).__mro__}
    if names & {"FSDPModule", "FullyShardedDataParallel"}:
        raise TypeError(
            "the model is sharded, and each rank has another part of it: use tulle.torch.fsdp_hook() for fully_shard() over "
            "one axis of a mesh with replicas on the other"
        )
    raise TypeError(
        f"the model is a {type(model).__name__}: wrap it in DistributedDataParallel first, or use "
        "tulle.torch.DistributedOptimizer without"
    )
