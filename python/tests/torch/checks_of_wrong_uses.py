"""Checks of two ranks: what users do wrong, and the error that all ranks get for it."""
import copy
import inspect
import io
import time
import warnings

import torch
import torch.distributed as dist
from checks import DDP, RANK, check, distance, loss_of, made, run, same_on_all_ranks
from torch import nn

import tulle
import tulle.torch

LONGEST_SECONDS = 60  # of an error that must not wait for a deadline, on a busy machine


def sgd(model, momentum=0.9, **options):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum, **options)


def raised_by(call):
    try:
        call()
    except Exception as error:  # whatever it is: its class is looked at
        return error
    raise AssertionError("nothing was raised")


def require(call, kind, words):
    began = time.monotonic()
    error = raised_by(call)
    assert type(error) is kind, repr(error)
    assert words in str(error), (words, error)
    assert time.monotonic() - began < LONGEST_SECONDS, (words, error)
    return error


def registered(model=None, recipe="redsync:1%", **options):
    ddp = DDP(model or made())
    return ddp, tulle.torch.register(ddp, recipe, **options)


# ------------------------------------------------------------ optimizers


def half_of(model, is_first):
    return [each for name, each in model.named_parameters() if name.startswith(("words", "first")) == is_first]


@check
def an_optimizer_must_have_what_the_model_trains():
    for recipe in ("redsync:1%", "topk:1%"):
        foreign = sgd(made())
        require(lambda: registered(recipe=recipe, optimizer=foreign), ValueError, "optimizer= does not have words.weight")
        assert foreign.param_groups[0]["momentum"] == 0.9
        model = made()
        one, other = (torch.optim.SGD(half_of(model, is_first), lr=0.05, momentum=0.9) for is_first in (True, False))
        require(lambda: registered(model, recipe, optimizer=one), ValueError, "does not have second.weight")
        require(lambda: registered(model, recipe, optimizer=[other]), ValueError, "does not have words.weight")
    _, handle = registered(model, optimizer=[one, other])
    assert one.param_groups[0]["momentum"] == other.param_groups[0]["momentum"] == 0
    assert "momentum" not in handle.recipe and "took over from SGD: momentum 0.9" in handle.report(), handle.report()
    require(lambda: registered(optimizer=["SGD"]), TypeError, "optimizer= is a str")
    model = made()
    rows = [(name, each) for name, each in model.named_parameters()]
    wrong = torch.optim.SGD(half_of(model, True), lr=0.1)
    require(lambda: tulle.torch.DistributedOptimizer(wrong, rows, "topk"), ValueError, "does not have second.weight")


@check
def momentum_of_parameters_that_the_recipe_does_not_send_is_left_alone():
    model, other = made(), made()
    both = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.05, momentum=0.9)
    require(lambda: registered(model, optimizer=both), ValueError, "that is not the model's in one group")
    apart = torch.optim.SGD([{"params": list(each.parameters())} for each in (model, other)], lr=0.05, momentum=0.9)
    registered(model, optimizer=apart)
    assert [group["momentum"] for group in apart.param_groups] == [0, 0.9]
    registered(other, optimizer=apart)
    assert [group["momentum"] for group in apart.param_groups] == [0, 0]
    model = made(sparse=True)
    require(lambda: registered(model, optimizer=sgd(model)), ValueError, "words.weight in one group")


class Wrapper(torch.optim.Optimizer):
    """As accelerate's and Lightning's: an optimizer around another."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    param_groups = property(lambda self: self.optimizer.param_groups)


@check
def an_optimizer_is_found_in_what_others_put_around_it():
    model = made()
    optimizer = sgd(model)
    _, handle = registered(model, optimizer=Wrapper(Wrapper(optimizer)))
    assert optimizer.param_groups[0]["momentum"] == 0 and "took over from SGD" in handle.report()
    require(lambda: registered(optimizer=Wrapper(torch.optim.Adam(model.parameters()))), ValueError, "does not have")
    adam = torch.optim.Adam(model.parameters())
    require(lambda: registered(model, optimizer=Wrapper(adam)), ValueError, "not from Adam: use a recipe without momentum")
    from torch.distributed.optim import ZeroRedundancyOptimizer

    zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.05, momentum=0.9)
    ddp, handle = registered(model, optimizer=zero)
    assert "took over from SGD: momentum 0.9" in handle.report()
    for step in range(3):
        zero.zero_grad()
        loss_of(ddp, step).backward()
        zero.step()
    assert zero.optim.param_groups[0]["momentum"] == 0 and same_on_all_ranks(model) and distance(model, made()) > 0


# ------------------------------------------------------------ models that change


@check
def parameters_that_are_trained_after_register_are_named():
    def unfreeze(model):
        model.extra.weight.requires_grad_(True)

    def add(model):
        model.norm.added = nn.Parameter(torch.ones(3))

    def replace(model):
        model.output = nn.Linear(160, 2)

    for change, name in ((unfreeze, "extra.weight"), (add, "norm.added"), (replace, "output.weight")):
        model = made()
        model.extra.weight.requires_grad_(False)
        ddp, _ = registered(model, "dense")
        loss_of(ddp, 0).backward()
        change(model)
        require(lambda: loss_of(ddp, 1).backward(), ValueError, f"{name} had no requires_grad, or was not there, at register()")


@check
def a_model_that_is_registered_may_be_copied_and_saved():
    ddp, handle = registered(made(), "topk:1%")
    loss_of(ddp, 0).backward()
    file = io.BytesIO()
    torch.save(ddp, file)
    file.seek(0)
    loaded = torch.load(file, **({"weights_only": False} if torch.__version__ >= "2" else {}))
    for other in (copy.deepcopy(ddp), loaded):
        assert distance(other.module, ddp.module) == 0
        loss_of(other, 1).backward()  # DDP's own sum
        handle = tulle.torch.register(other, "topk:1%")
        loss_of(other, 2).backward()
        assert handle.stats()["second.weight"]["step"] == 1
    require(lambda: copy.deepcopy(handle), TypeError, "handle.state_dict()")


@check
def a_change_on_one_rank_is_an_error_on_all_with_its_reason():
    model = made()
    ddp, _ = registered(model, "dense")
    if RANK == 1:
        model.added = nn.Parameter(torch.ones(3))
    error = require(lambda: loss_of(ddp, 0).backward(), ValueError, "added had no requires_grad")
    assert RANK == 1 or "rank 1: " in str(error), error
    ddp, _ = registered()
    loss_of(ddp, 0).backward()


@check
def ignored_and_frozen_parameters_may_be_there():
    model = made()
    model.extra.requires_grad_(False)
    DDP._set_params_and_buffers_to_ignore_for_model(model, ["norm.weight"])
    ddp, _ = registered(model, "dense")
    for step in range(2):
        loss_of(ddp, step).backward()
    model.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
    loss_of(ddp, 2).backward()


@check
def a_state_of_one_rank_is_not_loaded_on_another():
    def trained():
        model = made()
        ddp, handle = registered(model, "topk:1%,dense_below=0")
        loss_of(ddp, 0).backward()
        return handle

    handle, other = trained(), trained()
    waits = handle.residual("second.weight")
    saved = [handle.state_dict()]
    dist.broadcast_object_list(saved)  # as accelerate's register_for_checkpointing(handle)
    if RANK == 0:
        other.load_state_dict(saved[0])
    else:
        words = "it has the state of rank 0 of 2, and rank 1 of 2 needs its own or all"
        error = require(lambda: other.load_state_dict(saved[0]), ValueError, words)
        assert "register_for_checkpointing() handle.of_all_ranks()" in str(error)
    saved = [handle.of_all_ranks().state_dict()]
    dist.broadcast_object_list(saved)
    other.of_all_ranks().load_state_dict(saved[0])
    assert torch.equal(other.residual("second.weight"), waits)


# ------------------------------------------------------------ clipping


def trained_with(recipe, max_norm, clip=None, steps=6, momentum=0.0):
    model = made()
    optimizer = sgd(model, momentum)
    ddp, handle = registered(model, recipe, optimizer=optimizer, max_norm=max_norm)
    for step in range(steps):
        optimizer.zero_grad()
        (100 * loss_of(ddp, step)).backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    return model, handle


@check
def max_norm_clips_each_ranks_gradient_before_it_is_accumulated():
    def alone(rank, step, model):
        """The clipped gradient of a rank."""
        other = made()
        other.load_state_dict(model.state_dict())
        words, labels = batch_of(step, rank)
        (100 * nn.functional.cross_entropy(other(words), labels)).backward()
        nn.utils.clip_grad_norm_(other.parameters(), 0.5)
        return [each.grad for each in other.parameters()]

    from checks import batch as batch_of

    for recipe in ("dense", "topk:density=1,dense_below=0"):
        model = made()
        ddp, _ = registered(model, recipe, max_norm=0.5)
        (100 * loss_of(ddp, 0)).backward()
        for each, first, second in zip(model.parameters(), alone(0, 0, model), alone(1, 0, model)):
            assert torch.allclose(each.grad, (first + second) / 2, atol=1e-6)
    model = made()
    optimizer = tulle.torch.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, "dense", max_norm=0.5)
    (100 * loss_of(model, 0)).backward()
    optimizer.synchronize()
    assert 0.1 < float(nn.utils.clip_grad_norm_(model.parameters(), 1e9)) <= 0.5 + 1e-6
    for sparse in (False, True):
        model = made(sparse=sparse)
        ddp, _ = registered(model, "dense", max_norm=1e-9)
        loss_of(ddp, 0).backward()
        assert all(float(torch.linalg.vector_norm(each.grad.to_dense())) <= 1e-9 for each in model.parameters())


@check
def what_waits_is_of_clipped_gradients():
    """With momentum inside a bound on the update bounds a velocity, and nothing bounds what is gathered."""
    model, handle = trained_with("redsync:1%,dense_below=0", max_norm=0.01, momentum=0.9)
    waits = torch.cat([handle.residual(name) for name, _ in model.named_parameters()])
    assert float(waits.norm()) <= 6 * 0.01 / (1 - 0.9), float(waits.norm())
    assert same_on_all_ranks(model)


class Scaler:
    get_scale = staticmethod(lambda: 1024.0)


@check
def gradients_with_momentum_inside_reach_the_optimizer_as_they_are():
    words = "was changed after it was summed, and recipe dgc"
    clip = dict(recipe="dgc:10%", max_norm=None, momentum=0.9)
    error = require(lambda: trained_with(clip=0.1, **clip), ValueError, words)
    assert "max_norm=" in str(error)
    trained_with(**clip)
    trained_with(clip=0.1, recipe="topk:10%", max_norm=None, momentum=0.9)  # an update may be bounded

    def train(change, is_scheduled_first=None, scaler=None, **options):
        model = made()
        optimizer = sgd(model)
        schedule = lambda: torch.optim.lr_scheduler.StepLR(optimizer, 2)  # noqa: E731
        scheduler = schedule() if is_scheduled_first else None
        ddp = DDP(model, **options)
        tulle.torch.register(ddp, "dgc:10%", optimizer=optimizer, scaler=scaler)
        scheduler = schedule() if is_scheduled_first is False else scheduler
        for step in range(3):
            optimizer.zero_grad(set_to_none=step == 1)
            (loss_of(ddp, step) * (1 if scaler is None else 1024.0)).backward()
            if scaler is not None:
                for each in model.parameters():
                    each.grad /= 1024.0
            change(model)
            optimizer.step()
            if scheduler:
                scheduler.step()
        assert same_on_all_ranks(model) and not scheduler or optimizer.param_groups[0]["lr"] < 0.01

    def scaled(model):
        for each in model.parameters():
            each.grad.mul_(0.5)

    def replaced(model):
        model.second.weight.grad = model.second.weight.grad.clone()

    for options in ({}, {"gradient_as_bucket_view": True}, {"static_graph": True}, {"scaler": Scaler()}):
        train(lambda model: None, **options)
        require(lambda: train(scaled, **options), ValueError, words)
    require(lambda: train(replaced), ValueError, "second.weight was changed")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for is_first in (True, False):
            train(lambda model: None, is_first)
            require(lambda: train(scaled, is_first), ValueError, words)
    model = made()
    optimizer = sgd(model)
    ddp, _ = registered(model, "dgc:10%", optimizer=optimizer)

    def closure(change=lambda model: None):
        optimizer.zero_grad()
        loss = loss_of(ddp, 0)
        loss.backward()
        change(model)
        return loss

    assert float(optimizer.step(closure)) > 0 and float(optimizer.step(closure=closure)) > 0
    require(lambda: optimizer.step(lambda: closure(scaled)), ValueError, words)  # as Lightning does
    model = made()
    optimizer = tulle.torch.DistributedOptimizer(sgd(model), model, "dgc:10%")
    loss_of(model, 0).backward()
    optimizer.step()
    loss_of(model, 1).backward()
    optimizer.synchronize()
    scaled(model)
    require(optimizer.step, ValueError, words)


# ------------------------------------------------------------ weights that differ


@check
def weights_that_one_rank_changed_are_found():
    def change(model):
        if RANK == 1:
            with torch.no_grad():
                model.second.weight[3, 3] += 0.5

    words = "second.weight is"
    for options in ({}, {"scaler": Scaler()}, {"max_norm": 1.0}):
        model = made()
        ddp, _ = registered(model, "topk:1%", weights_check_every=2, **options)
        optimizer = sgd(model)
        for step in range(5):
            if step == 3:
                change(model)
            train = lambda: loss_of(ddp, step).backward()  # noqa: B023, E731
            error = require(train, tulle.MismatchError, words) if step == 4 else train()
            optimizer.step()
        assert "replicas differ: after 4 steps" in str(error) and "on rank 0" in str(error), error
    model = made()
    optimizer = tulle.torch.DistributedOptimizer(sgd(model), model, "topk:1%")
    change(model)
    loss_of(model, 0).backward()
    require(optimizer.step, tulle.MismatchError, words)  # the first step is looked at
    model = made()
    local = tulle.torch.Local(model, sgd(model), "local2", weights_check_every=1)
    for step in range(4):
        change(model)  # which is an update
        loss_of(model, step).backward()
        local.step()
    assert same_on_all_ranks(model)


@check
def ranks_that_ran_out_of_input_may_have_other_weights_until_the_end():
    model = made()
    ddp, _ = registered(model, "topk:1%", weights_check_every=1)
    optimizer = sgd(model)
    with ddp.join():
        for step in range(2 + 2 * RANK):
            optimizer.zero_grad()
            loss_of(ddp, step).backward()
            optimizer.step()
    assert same_on_all_ranks(model)


# ------------------------------------------------------------ one rank does something else


@check
def an_error_of_one_rank_is_the_error_of_all():
    """Rows of what rank 1 does, the class of the error and its words; rank 0 does what is right."""
    model = made()
    ddp, optimizer = DDP(model), sgd(model)

    def register(recipe="topk:1%", **options):
        return lambda: tulle.torch.register(ddp, recipe, **options)

    def wrap(*arguments, **options):
        return lambda: tulle.torch.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), *arguments, **options)

    def local(*arguments, **options):
        return lambda: tulle.torch.Local(model, torch.optim.SGD(model.parameters(), lr=0.1), *arguments, **options)

    right = {"register": register(), "wrap": wrap(model), "local": local("local2")}
    for call, wrong, kind, words in [
        ("register", register("topkk:1%"), tulle.BadInputError, "topkk"),
        ("register", register("topk", sead=1), TypeError, "no option 'sead'"),
        ("register", register("topk", seed="one"), TypeError, "seed"),
        ("register", register("topk", deadline=None), TypeError, "deadline is None"),
        ("register", register("topk", deadline=-1), ValueError, "deadline is -1"),
        ("register", register("local2"), ValueError, "local steps"),
        ("register", register(optimizer=sgd(made())), ValueError, "optimizer= does not have"),
        ("register", register("dgc", optimizer=torch.optim.Adam(model.parameters())), ValueError, "not from Adam"),
        ("register", register(roles={"wrods": "output"}), ValueError, "roles name 'wrods'"),
        ("register", register(None), TypeError, "recipe is None: give its text"),
        ("register", register(roles=["output"]), TypeError, "roles are a list: give a dict"),
        ("register", register(scaler=True), TypeError, "scaler is a bool: pass the GradScaler"),
        ("register", register(max_norm=-1.0), ValueError, "max_norm is -1.0"),
        ("register", register(max_norm="1"), TypeError, "max_norm is '1'"),
        ("register", register(scaler=Scaler()), tulle.MismatchError, "scaler is not given on rank 0, is given on rank 1"),
        ("register", register(max_norm=1.0), tulle.MismatchError, "max_norm is None on rank 0, is 1.0 on rank 1"),
        ("register", register("topk:2%"), tulle.MismatchError, "recipe is"),
        ("register", wrap(model), tulle.MismatchError, "the call is tulle.torch.register() on rank 0"),
        ("wrap", wrap(model.parameters()), TypeError, "named_parameters()"),
        ("wrap", wrap(model, sparse=["wrods"]), ValueError, "sparse names wrods"),
        ("wrap", wrap(model, scaler=Scaler()), tulle.MismatchError, "scaler is not given on rank 0"),
        ("local", local("local2", every="two"), ValueError, "two"),
        ("local", local("local2", every=3), tulle.MismatchError, "recipe is"),
    ]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            error = require(right[call] if RANK == 0 else wrong, kind, words)
        assert kind is tulle.MismatchError or RANK == 1 or "rank 1: " in str(error), error
    assert optimizer.param_groups[0]["momentum"] == 0.9
    ddp, _ = registered(made(), "topk:1%")  # what failed has broken nothing
    loss_of(ddp, 0).backward()


@check
def a_gradient_that_is_not_finite_is_the_same_error_on_all():
    for options in ({}, {"max_norm": 1.0}):
        ddp, _ = registered(made(), "topk:1%,dense_below=0", **options)
        loss = loss_of(ddp, 0) * (float("nan") if RANK == 1 else 1.0)
        error = require(loss.backward, tulle.BadInputError, "is not finite at index")
        assert "rank 1: the gradient of " in str(error), error


@check
def a_rank_that_does_not_come_to_register_is_named_within_the_deadline():
    for _ in range(2):  # where ranks are not connected, and where they are
        group = dist.new_group()
        if RANK == 0:
            ddp = DDP(made(), process_group=group)
            began = time.monotonic()
            error = raised_by(lambda: tulle.torch.register(ddp, "dense", deadline=1))
            assert isinstance(error, tulle.DeadlineError) and "rank 1" in str(error), error
            assert time.monotonic() - began < LONGEST_SECONDS
        else:
            DDP(made(), process_group=group)
        dist.barrier()
    ddp = DDP(made(), process_group=group)
    handle = tulle.torch.register(ddp, "dense", deadline=30)  # who comes late may try again
    loss_of(ddp, 0).backward()
    assert handle.stats()["second.weight"]["step"] == 1


@check
def what_one_rank_calls_alone_ends_within_the_deadline():
    calls = [lambda handle: handle.report(), lambda handle: handle.state_dict(all_ranks=True)]
    for call in calls:
        ddp, handle = registered(made(), "topk:1%", deadline=2)
        loss_of(ddp, 0).backward()
        if RANK == 0:
            error = raised_by(lambda: call(handle))
            assert isinstance(error, tulle.DeadlineError) and "rank 1" in str(error), error
        dist.barrier()
        error = raised_by(lambda: loss_of(ddp, 1).backward())  # what went wrong is told to who comes later
        assert isinstance(error, tulle.Error) and "rank 1" in str(error), error
        assert "within 2 s" in str(error) or "2 s" in str(error), error


@check
def what_cannot_be_done_twice_or_too_late_is_refused():
    ddp, _ = registered(made(), "topk:1%")
    require(lambda: tulle.torch.register(ddp, "topk:1%"), RuntimeError, "register_comm_hook")
    model = made()
    optimizer = tulle.torch.DistributedOptimizer(sgd(model), model, "topk:1%")
    words = "DistributedOptimizer already"
    require(lambda: tulle.torch.DistributedOptimizer(optimizer, model, "topk:1%"), TypeError, words)
    require(lambda: optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))]}), ValueError, "add them before")
    model.added = nn.Parameter(torch.ones(3))
    optimizer.param_groups[0]["params"].append(model.added)
    (loss_of(model, 0) + model.added.sum()).backward()
    require(optimizer.step, ValueError, "a parameter of shape (3,) has a gradient and was not there")
    model, other = made(), made()
    both = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    require(lambda: tulle.torch.Local(model, both, "local2"), ValueError, "that was not the model's")
    for change in (lambda: model.extra.weight.requires_grad_(True), lambda: local.inner.add_param_group({"params": [wide]})):
        model, wide = made(), nn.Parameter(torch.ones(3))
        model.extra.weight.requires_grad_(False)
        local = tulle.torch.Local(model, sgd(model), "local2")
        local.step()
        dist.barrier()
        change()
        require(local.step, ValueError, "or had no requires_grad, at Local()")
    model = made()
    model.first.weight.requires_grad_(False)
    optimizer = tulle.torch.DistributedOptimizer(sgd(model), model, "topk:1%")
    model.first.weight.requires_grad_(True)
    loss_of(model, 0).backward()
    require(optimizer.step, ValueError, "has a gradient and was not there, or had no requires_grad")


# ------------------------------------------------------------ sharded models, and words


@check
def a_sharded_model_is_summed_over_ranks_with_the_same_shards_only():
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
    except ImportError:  # of another torch
        return

    def sharded(mesh):
        model = made()
        for layer in (model.first, model.second, model):
            fully_shard(layer, mesh=mesh)
        return model

    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
    replicas = mesh["replicate"].get_group()
    hook = tulle.torch.fsdp_hook
    require(lambda: hook(sharded(mesh["shard"]), group=None), TypeError, 'give mesh["replicate"].get_group()')
    require(lambda: hook(sharded(mesh), group=replicas), ValueError, 'fully_shard(model, mesh=mesh["shard"])')
    shards = init_device_mesh("cpu", (1, 2), mesh_dim_names=("replicate", "shard"))
    words = f"rank {1 - RANK} of the group has another shard of "
    require(lambda: hook(sharded(shards["shard"]), group=shards["shard"].get_group()), ValueError, words)
    model = sharded(mesh["shard"])
    require(lambda: hook(model, "powersgd:1", group=replicas), ValueError, "sends factors of matrices")
    require(lambda: hook(model, "local2", group=replicas), ValueError, "tulle.torch.Local")
    require(lambda: hook(made(), group=replicas), ValueError, "no module of the model is in fully_shard()")
    require(lambda: tulle.torch.register(model), TypeError, "the model is sharded")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for make in (tulle.torch.DistributedOptimizer, lambda *given: tulle.torch.Local(*reversed(given))):
        require(lambda: make(optimizer, model), TypeError, "words.weight is a DTensor")
    weight = next(model.parameters())
    for call in (tulle.torch.all_reduce, lambda tensor: tulle.torch.broadcast_parameters([("w", tensor)])):
        require(lambda: call(weight), TypeError, "is a DTensor")
    handle = hook(model, "topk:1%", group=replicas)
    loss_of(model, 0).backward()
    assert handle.plan()["second"]["how"] == "exact_top_k" and "second" in handle.plan_text()
    require(lambda: handle.load_state_dict({"third": {}}), ValueError, "no module in fully_shard() is called 'third'")


@check
def options_are_known_to_who_checks_types():
    functions = (
        tulle.torch.register, tulle.torch.DistributedOptimizer, tulle.torch.Local, tulle.torch.fsdp_hook,
        tulle.torch.all_reduce,
    )  # fmt: skip
    for function in functions:
        assert "Unpack[" in inspect.signature(function).parameters["options"].annotation, function


@check
def a_rank_that_is_not_in_the_group_is_told():
    group = dist.new_group([0])
    if RANK == 1:
        require(lambda: tulle.torch.all_reduce(torch.ones(2), group=group), ValueError, "rank 1 is not in the process group")
    else:
        assert tulle.torch.all_reduce(torch.ones(2), group=group).tolist() == [1, 1]


@check
def warnings_point_to_the_line_of_the_script():
    ddp = DDP(made())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tulle.torch.register(ddp, "dgc:1%")
    [warning] = [each for each in told if "keeps momentum" in str(each.message)]
    assert warning.filename == __file__, warning.filename


run()
