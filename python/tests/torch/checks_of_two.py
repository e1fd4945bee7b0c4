"""Checks of two ranks: DDP in all its modes, beside DDP's own sum."""
import gc
import os
import time
import warnings

import torch
import torch.distributed as dist
from checks import DDP, RANK, check, distance, loss_of, made, run, same_on_all_ranks, sum_over_ranks
from torch import nn

import tulle
import tulle.torch

BUCKET_MB = 0.02  # several buckets, and others once DDP has rebuilt them


def train(recipe, uses_extra=lambda step: True, steps=6, sparse=False, model=None, optimizer=None, **options):
    """Trains with a recipe, or with DDP's own sum where that is None."""
    model = model or made(sparse=sparse)
    ddp = DDP(model, bucket_cap_mb=BUCKET_MB, **options)
    optimizer = optimizer(model) if optimizer else torch.optim.SGD(model.parameters(), lr=0.1)
    handle = None if recipe is None else tulle.torch.register(ddp, recipe, optimizer=optimizer)
    for step in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss_of(ddp, step, uses_extra(step)).backward()
        optimizer.step()
    return model, handle


def is_ddp(recipe="dense", **arguments):
    ours, handle = train(recipe, **arguments)
    own, _ = train(None, **arguments)
    assert distance(ours, own) == 0, distance(ours, own)  # of two numbers there is one sum
    return handle


@check
def dense_is_what_ddp_sums():
    is_ddp()


@check
def a_recipe_at_density_1_is_what_ddp_sums():
    is_ddp("topk:density=1,dense_below=0")


@check
def buckets_may_be_views_of_gradients():
    is_ddp(gradient_as_bucket_view=True)


@check
def places_in_buckets_are_found_once_and_those_of_rebuilt_buckets_are_dropped():
    made_places = []

    class Counted(tulle.torch._pipeline.Place):
        def __init__(self, tensor, stage):
            made_places.append(tensor.data_ptr())
            super().__init__(tensor, stage)

    original, tulle.torch._pipeline.Place = tulle.torch._pipeline.Place, Counted
    try:
        model, handle = train("dense", steps=8)
    finally:
        tulle.torch._pipeline.Place = original
    count = sum(1 for _ in model.parameters())
    assert count < len(made_places) <= 2 * count, (count, len(made_places))  # DDP rebuilds its buckets once
    kept = [place for places in handle._buckets.values() for place in places.values()]
    assert sorted(place.tensor.data_ptr() for place in kept) == sorted(made_places[-count:])


@check
def dense_and_sparse_gradients_go_together():
    is_ddp(sparse=True)
    is_ddp("topk:density=1", sparse=True, find_unused_parameters=True)


@check
def a_static_graph_is_summed():
    is_ddp(static_graph=True)
    is_ddp(static_graph=True, sparse=True, uses_extra=lambda step: False)


@check
def a_parameter_may_get_its_first_gradient_in_a_later_step():
    is_ddp(find_unused_parameters=True, uses_extra=lambda step: step >= 4)


@check
def a_parameter_may_be_unused_on_one_rank():
    is_ddp(find_unused_parameters=True, uses_extra=lambda step: step % 2 == RANK)


@check
def nothing_is_lost_where_parameters_are_unused():
    model = made()
    ddp = DDP(model, bucket_cap_mb=BUCKET_MB, find_unused_parameters=True)
    handle = tulle.torch.register(ddp, "topk:20%,dense_below=0")
    given = {name: torch.zeros_like(each) for name, each in model.named_parameters()}
    delivered = {name: torch.zeros_like(each) for name, each in model.named_parameters()}
    for step in range(6):
        uses = step in (0, 4) or (step == 2 and RANK == 1)
        alone = made()  # the gradient of this rank
        loss_of(alone, step, uses).backward()
        ddp.zero_grad(set_to_none=True)
        loss_of(ddp, step, uses).backward()
        for name, each in alone.named_parameters():
            given[name] += each.grad if each.grad is not None else 0
        for name, each in model.named_parameters():
            delivered[name] += each.grad if each.grad is not None else 0
    for name in given:
        left = sum_over_ranks(handle.residual(name).view_as(given[name]))
        total = sum_over_ranks(given[name])
        assert torch.allclose(2 * delivered[name] + left, total, atol=1e-5), name
    assert float(handle.residual("extra.weight").abs().sum()) > 0


@check
def no_sync_adds_gradients_up():
    def train_in_pairs(recipe):
        model = made()
        ddp = DDP(model, bucket_cap_mb=BUCKET_MB)
        if recipe:
            tulle.torch.register(ddp, recipe)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            with ddp.no_sync():
                loss_of(ddp, 2 * step).backward()
            loss_of(ddp, 2 * step + 1).backward()
            optimizer.step()
        return model

    assert distance(train_in_pairs("dense"), train_in_pairs(None)) == 0


@check
def ranks_may_run_out_of_input():
    def train_unevenly(recipe, **options):
        model = made()
        ddp = DDP(model, bucket_cap_mb=BUCKET_MB, **options)
        if recipe:
            tulle.torch.register(ddp, recipe)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with ddp.join():
            for step in range(3 + 2 * RANK):
                optimizer.zero_grad()
                loss_of(ddp, step).backward()
                optimizer.step()
        assert same_on_all_ranks(model)
        return model

    assert distance(train_unevenly("dense"), train_unevenly(None)) == 0
    train_unevenly("topk:5%,dense_below=100")
    train_unevenly("topk:5%,dense_below=100", find_unused_parameters=True)


class Product(nn.Module):
    """What 16 bits can do on the CPU of every torch."""

    def __init__(self, dtype):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(100, 100, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(10, dtype=dtype))

    def forward(self, factor):
        return (self.weight * factor).float().sum() + (self.bias * factor[0, :10]).float().sum()


@check
def sixteen_bits_are_summed_in_single_precision():
    for dtype in (torch.bfloat16, torch.float16):
        factors = [torch.linspace(-1 - rank, 1, 10_000).view(100, 100).to(dtype) for rank in range(2)]
        mean = ((factors[0].float() + factors[1].float()) / 2).to(dtype)

        model = Product(dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        optimizer = tulle.torch.DistributedOptimizer(optimizer, model, "topk:density=1,dense_below=0")
        model(factors[RANK]).backward()
        optimizer.step()
        assert torch.equal(model.weight.detach(), -mean) and torch.equal(model.bias.detach(), -mean[0, :10])

        try:
            ddp = DDP(Product(dtype))
        except RuntimeError as error:  # gloo of torch 1.13 knows no bfloat16
            assert "Invalid scalar type" in str(error) and dtype == torch.bfloat16
            continue
        tulle.torch.register(ddp, "topk:density=1,dense_below=0")
        ddp(factors[RANK]).backward()
        assert torch.equal(ddp.module.weight.grad, mean) and ddp.module.weight.grad.dtype == dtype


@check
def frozen_and_tied_weights_and_clipping():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.words = nn.Embedding(50, 40)
            self.frozen = nn.Linear(40, 40)
            self.frozen.weight.requires_grad_(False)
            self.output = nn.Linear(40, 50)
            self.output.weight = self.words.weight

        def forward(self, words, _=True):
            return self.output(self.frozen(self.words(words).sum(1)))[:, :2]

    def train_clipped(recipe):
        model = Tied()
        ddp = DDP(model)
        handle = tulle.torch.register(ddp, recipe) if recipe else None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(ddp, step).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        return model, handle

    (ours, handle), (own, _) = train_clipped("dense"), train_clipped(None)
    assert distance(ours, own) == 0
    assert [row["parameter"] for row in handle.plan()] == ["words.weight", "frozen.bias", "output.bias"]


@check
def the_optimizer_hands_over_what_the_recipe_wants_inside():
    def sgd(model):
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.8, weight_decay=0.01)

    def sgd_by_group(model):
        matrices = [each for each in model.parameters() if each.dim() > 1]
        vectors = [each for each in model.parameters() if each.dim() < 2]
        groups = [{"params": matrices, "weight_decay": 0.02}, {"params": vectors, "weight_decay": 0.0}]
        return torch.optim.SGD(groups, lr=0.05, momentum=0.8)

    for optimizer in (sgd, sgd_by_group):
        ours, handle = train("dense|momentum:0.5", optimizer=optimizer)
        own, _ = train(None, optimizer=optimizer)
        assert distance(ours, own) < 1e-6, distance(ours, own)
        assert "momentum:0.8" in handle.recipe and "took over from SGD: momentum 0.8" in handle.report()
    ddp = DDP(made())
    nesterov = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    assert "nesterov" in tulle.torch.register(ddp, "dgc:1%", optimizer=nesterov).recipe
    assert nesterov.param_groups[0]["momentum"] == 0 and not nesterov.param_groups[0]["nesterov"]
    try:
        tulle.torch.register(ddp, "dgc:1%", optimizer=torch.optim.Adam(ddp.parameters()))
    except ValueError as error:
        assert "Adam" in str(error) and "momentum:0" in str(error)
    else:
        raise AssertionError("Adam has no momentum to hand over")


class Scaler:
    """As much of a GradScaler as torch 1.13 has not on the CPU."""

    def __init__(self):
        self.scale_now, self.skipped = 1024.0, 0

    def get_scale(self):
        return self.scale_now

    def step(self, optimizer, parameters):
        values = [each.grad._values() if each.grad.is_sparse else each.grad for each in parameters]
        if all(bool(torch.isfinite(each).all()) for each in values):
            for each in values:
                each /= self.scale_now
            optimizer.step()
        else:
            self.skipped += 1
            self.scale_now /= 2


@check
def a_scaler_is_undone_and_infinity_skips_the_step_everywhere():
    def train_scaled(scaler):
        model = made()
        ddp = DDP(model, bucket_cap_mb=BUCKET_MB)
        handle = tulle.torch.register(ddp, "topk:10%,dense_below=100", scaler=scaler)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(5):
            optimizer.zero_grad()
            loss = loss_of(ddp, step)
            if scaler is None:
                if step != 2:
                    loss.backward()
                    optimizer.step()
                continue
            (loss * (float("inf") if step == 2 and RANK == 1 else scaler.get_scale())).backward()
            scaler.step(optimizer, list(model.parameters()))
        return model, handle

    scaler = Scaler()
    scaled, handle = train_scaled(scaler)
    plain, beside = train_scaled(None)
    assert scaler.skipped == 1 and "1 steps were skipped" in handle.report()
    beside.report()
    assert distance(scaled, plain) < 1e-6, distance(scaled, plain)
    assert torch.allclose(handle.residual("second.weight"), beside.residual("second.weight"), atol=1e-6)
    if hasattr(torch.amp, "GradScaler"):
        real = torch.amp.GradScaler("cpu", init_scale=8.0)
        ddp = DDP(made())
        tulle.torch.register(ddp, "topk:10%", scaler=real)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        real.scale(loss_of(ddp, 0) * (float("inf") if RANK == 1 else 1.0)).backward()
        real.step(optimizer)
        real.update()
        assert real.get_scale() == 4.0 and distance(ddp.module, made()) == 0


@check
def two_models_have_a_handle_each():
    models = [made(seed) for seed in range(2)]
    ddps = [DDP(each, bucket_cap_mb=BUCKET_MB) for each in models]
    handles = [tulle.torch.register(each, "topk:10%,dense_below=100") for each in ddps]
    optimizer = torch.optim.SGD([p for each in models for p in each.parameters()], lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        (loss_of(ddps[0], step) + loss_of(ddps[1], step)).backward()  # their buckets come mixed
        optimizer.step()
    assert all(same_on_all_ranks(each) for each in models)
    assert handles[0].stats()["second.weight"]["step"] == handles[1].stats()["second.weight"]["step"] == 3


@check
def the_environment_turns_compression_off():
    os.environ["TULLE_RECIPE"] = "dense"
    try:
        _, handle = train("dgc:0.1%", steps=1)
    finally:
        del os.environ["TULLE_RECIPE"]
    assert handle.recipe == "dense"


# ------------------------------------------------------------ optimizers without DDP


def wrapped(model, recipe="dense", optimizer=None, **arguments):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    return tulle.torch.DistributedOptimizer(optimizer, model, recipe, **arguments)


def error_of(call):
    try:
        call()
    except (ValueError, TypeError, RuntimeError) as error:
        return str(error)
    raise AssertionError("nothing was raised")


@check
def a_scheduler_may_be_made_before_or_after_the_optimizer_is_wrapped():
    def train_by(is_before):
        model = made()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2) if is_before else None
        optimizer = wrapped(model, optimizer=optimizer)
        scheduler = scheduler or torch.optim.lr_scheduler.StepLR(optimizer, 2)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for step in range(4):
                optimizer.zero_grad()
                loss_of(model, step).backward()
                optimizer.step()
                scheduler.step()
        assert not [each for each in told if "scheduler" in str(each.message)], told[0].message
        assert optimizer.param_groups[0]["lr"] < 0.01 and same_on_all_ranks(model)
        return model

    assert distance(train_by(True), train_by(False)) == 0


@check
def zeros_on_one_rank_and_nothing_on_another_are_a_gradient_on_both():
    model = made()
    optimizer = wrapped(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1))
    if RANK == 0:
        (0.0 * loss_of(model, 0, False)).backward()
    optimizer.step()
    assert same_on_all_ranks(model) and not torch.equal(model.second.weight, made().second.weight)
    assert torch.equal(model.extra.weight, made().extra.weight)  # nobody has one


@check
def gradients_are_summed_before_every_step_that_does_not_skip_it():
    model = made()
    optimizer = wrapped(model)
    loss_of(model, 0).backward()
    with optimizer.skip_synchronize():
        pass
    optimizer.step()
    assert same_on_all_ranks(model)

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model, 1)
        loss.backward()
        return loss

    closure()
    optimizer.synchronize()
    assert float(optimizer.step(closure)) > 0 and same_on_all_ranks(model)
    optimizer.synchronize()  # and no step, as where a scaler finds an infinity
    optimizer.zero_grad()
    loss_of(model, 2).backward()
    optimizer.step()
    assert same_on_all_ranks(model)
    optimizer.zero_grad()
    loss_of(model, 3).backward()
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        optimizer.step()
    assert same_on_all_ranks(model)


@check
def memory_may_be_in_another_order_on_each_rank():
    expected = torch.arange(6.0).view(2, 3)
    given = expected.clone() if RANK == 0 else expected.t().contiguous().t()
    assert torch.equal(tulle.torch.all_reduce(given.clone(memory_format=torch.preserve_format)), 2 * expected)
    model = nn.Linear(3, 2, bias=False)
    optimizer = wrapped(model)
    model.weight.grad = given
    optimizer.synchronize()
    assert torch.equal(model.weight.grad, expected)
    weights = nn.Parameter((given + RANK).clone(memory_format=torch.preserve_format))
    tulle.torch.broadcast_parameters([("weights", weights)], root=1)
    assert torch.equal(weights.detach(), expected + 1)
    model = nn.Conv2d(2, 2, 3)
    model = model.to(memory_format=torch.channels_last) if RANK == 1 else model
    assert "memory formats" in error_of(lambda: wrapped(model))


@check
def weight_decay_by_group_reaches_the_right_values_in_every_memory_format():
    def train_images(is_ours, memory_format):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 2)).to(memory_format=memory_format)
        ddp = DDP(model)
        matrices, vectors = ([p for p in model.parameters() if (p.dim() > 1) == wanted] for wanted in (True, False))
        groups = [{"params": matrices, "weight_decay": 0.5}, {"params": vectors, "weight_decay": 0.0}]
        optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.8)
        if is_ours:
            tulle.torch.register(ddp, "dense|momentum:0.5", optimizer=optimizer)
        for step in range(3):
            optimizer.zero_grad()
            generator = torch.Generator().manual_seed(2 * step + RANK)
            ddp(torch.randn(2, 3, 8, 8, generator=generator)).square().mean().backward()
            optimizer.step()
        return model

    for memory_format in (torch.contiguous_format, torch.channels_last):
        apart = distance(train_images(True, memory_format), train_images(False, memory_format))
        assert apart < 1e-6, (memory_format, apart)


@check
def what_the_recipe_took_over_does_not_come_back():
    def begin(momentum=0.8, saved=None):
        model = made()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum, weight_decay=0.01)
        if saved:
            optimizer.load_state_dict(saved)
        ddp = DDP(model)
        return ddp, optimizer, tulle.torch.register(ddp, "redsync:1%", optimizer=optimizer)

    ddp, optimizer, handle = begin()
    plain = torch.optim.SGD(made().parameters(), lr=0.05, momentum=0.8).state_dict()
    loss_of(ddp, 0).backward()
    saved, kept = optimizer.state_dict(), handle.state_dict()
    optimizer.load_state_dict(plain)
    assert "momentum 0.8 again" in error_of(lambda: loss_of(ddp, 1).backward())

    ddp, optimizer, handle = begin()
    optimizer.load_state_dict(saved)
    handle.load_state_dict(kept)
    loss_of(ddp, 1).backward()
    _, _, handle = begin(saved=saved)  # before register(): the groups have 0, and so the recipe its own momentum
    assert "load the optimizer's state only afterwards" in error_of(lambda: handle.load_state_dict(kept))

    ddp, optimizer, handle = begin()
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10)
    assert "cycle_momentum=False" in error_of(lambda: loss_of(ddp, 0).backward())
    model = made()
    optimizer = wrapped(model, "redsync:1%", torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.8))
    gc.collect()
    optimizer.load_state_dict(plain)
    loss_of(model, 0).backward()
    assert "momentum 0.8 again" in error_of(optimizer.step) and scheduler is not None


@check
def what_fails_leaves_the_optimizer_as_it_was():
    def momentum_after(make):
        model = made()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        error_of(lambda: make(model, optimizer))
        return optimizer.param_groups[0]["momentum"]

    def twice(model, optimizer):
        ddp = DDP(model)
        tulle.torch.register(ddp, "topk")
        tulle.torch.register(ddp, "redsync", optimizer=optimizer)

    assert momentum_after(twice) == 0.9
    assert momentum_after(lambda model, optimizer: wrapped(model.double(), "redsync", optimizer)) == 0.9


@check
def every_type_is_broadcast_to_the_bit():
    module = nn.Module()
    values = torch.full((2,), 1.5 + 2.5j) if RANK == 0 else torch.zeros(2, dtype=torch.complex64)
    module.register_parameter("complex", nn.Parameter(values))
    for name, values in {
        "flags": torch.tensor([True, False, True]),
        "bytes": torch.tensor([200], dtype=torch.uint8),
        "shorts": torch.tensor([-7, 7, 0], dtype=torch.int16),
        "floats": torch.tensor([1.5], dtype=torch.float16),
        "bfloats": torch.tensor([[1.5, 2.5]], dtype=torch.bfloat16),
        "count": torch.tensor(3),
    }.items():
        module.register_buffer(name, values if RANK == 0 else torch.zeros_like(values))
    tulle.torch.broadcast_parameters(module)
    assert module.complex.tolist() == [1.5 + 2.5j] * 2 and module.flags.tolist() == [True, False, True]
    assert module.bytes.tolist() == [200] and module.shorts.tolist() == [-7, 7, 0] and module.floats.item() == 1.5
    assert module.bfloats.tolist() == [[1.5, 2.5]] and module.count.item() == 3


@check
def parameters_may_be_frozen_since_ddp_was_made_but_not_unfrozen():
    def begin(before=True, after=True, **options):
        model = made()
        model.second.weight.requires_grad_(before)
        ddp = DDP(model, bucket_cap_mb=BUCKET_MB, **options)
        model.second.weight.requires_grad_(after)
        return ddp

    for options in ({}, {"static_graph": True}):
        ddp = begin(before=False, **options)
        tulle.torch.register(ddp, "dense", deadline=20)
        assert "does not sum second.weight" in error_of(lambda: loss_of(ddp, 0).backward())
    for options in ({"find_unused_parameters": True}, {"static_graph": True}):
        ours, own = begin(after=False, **options), begin(after=False, **options)
        tulle.torch.register(ours, "dense", deadline=20)
        for step in range(3):
            for ddp in (ours, own):
                ddp.zero_grad(set_to_none=True)
                loss_of(ddp, step).backward()
            pairs = zip(ours.parameters(), own.parameters())
            assert all(a.grad is b.grad is None or torch.equal(a.grad, b.grad) for a, b in pairs)
    ours = begin(after=False, find_unused_parameters=True)
    tulle.torch.register(ours, "dense", deadline=20)
    loss_of(ours, 0).backward()
    ours.module.second.weight.requires_grad_(True)
    assert "second.weight had no requires_grad" in error_of(lambda: loss_of(ours, 1).backward())


@check
def a_scaler_goes_with_an_optimizer_without_ddp():
    def train_scaled(scaler):
        model = made(sparse=True)
        optimizer = wrapped(model, "topk:10%,dense_below=100", scaler=scaler)
        for step in range(5):
            optimizer.zero_grad(set_to_none=True)
            if scaler is None:
                if step != 2:
                    loss_of(model, step).backward()
                    optimizer.step()
                continue
            (loss_of(model, step) * (float("inf") if step == 2 and RANK == 1 else scaler.get_scale())).backward()
            optimizer.synchronize()
            scaler.step(optimizer, list(model.parameters()))
        assert same_on_all_ranks(model)
        return model, optimizer

    scaler = Scaler()
    (scaled, optimizer), (plain, beside) = train_scaled(scaler), train_scaled(None)
    assert scaler.skipped == 1 and "1 steps were skipped" in optimizer.report()
    beside.report()
    assert distance(scaled, plain) < 1e-6, distance(scaled, plain)
    assert "before scaler.step" in error_of(optimizer.step)
    if hasattr(torch.amp, "GradScaler"):
        real, model = torch.amp.GradScaler("cpu", init_scale=8.0), made()
        optimizer = wrapped(model, scaler=real)
        for step in range(2):
            optimizer.zero_grad()
            real.scale(loss_of(model, step) * (float("inf") if RANK == 1 and step == 0 else 1.0)).backward()
            optimizer.synchronize()
            real.step(optimizer)
            real.update()
            assert real.get_scale() == 4.0 and same_on_all_ranks(model) and (distance(model, made()) > 0) == (step == 1)


@check
def ranks_without_values_find_the_infinity_too():
    def infinite_on_rank_0(model):
        words = torch.tensor([1, 2]) if RANK == 0 else torch.empty(0, dtype=torch.int64)
        (model(words).sum() * (float("inf") if RANK == 0 else 1.0)).backward()

    ddp = DDP(nn.Embedding(20, 4, sparse=True))
    tulle.torch.register(ddp, "dense", scaler=Scaler())
    infinite_on_rank_0(ddp)
    assert torch.isinf(ddp.module.weight.grad._values()).any()
    model = nn.Embedding(20, 4, sparse=True)
    optimizer = wrapped(model, scaler=Scaler())
    if RANK == 0:
        infinite_on_rank_0(model)
    optimizer.synchronize()
    assert torch.isinf(model.weight.grad._values()).any()


@check
def sums_that_were_started_go_on_by_themselves():
    def is_completed_after(seconds):
        work = tulle.torch.all_reduce(torch.ones(1 << 20), async_op=True)
        time.sleep(seconds)
        is_completed = work.is_completed()
        assert float(work.wait()[0]) == 2
        dist.barrier()
        return is_completed

    assert any([is_completed_after(seconds) for seconds in (0.3, 3)])  # a busy machine may need longer


@check
def the_environment_leaves_local_steps_as_they_are():
    os.environ["TULLE_RECIPE"] = "dense"
    try:
        model = made()
        local = tulle.torch.Local(model, torch.optim.SGD(model.parameters(), lr=0.1), "sparseloco")
    finally:
        del os.environ["TULLE_RECIPE"]
    assert local.every == 30 and local.recipe == "dense|every:30", local.recipe


@check
def a_rank_whose_scaler_skips_comes_to_the_exchange_all_the_same():
    class SkipsOnce:
        calls = 0

        def step(self, optimizer):
            self.calls += 1
            return optimizer.step() if RANK == 0 or self.calls > 1 else None

    model, scaler = made(), SkipsOnce()
    local = tulle.torch.Local(model, torch.optim.SGD(model.parameters(), lr=0.1), "local2")
    for step in range(4):
        local.zero_grad()
        loss_of(model, step).backward()
        local.step(scaler=scaler)
    assert same_on_all_ranks(model) and distance(model, made()) > 0


@check
def what_cannot_work_is_refused_with_what_to_call():
    one = made()
    sgd = torch.optim.SGD(one.parameters(), lr=0.1)
    for make, words in [
        (lambda: tulle.torch.register(DDP(made()), "sparseloco"), "tulle.torch.Local"),
        (lambda: tulle.torch.register(DDP(made().double()), "topk"), "model.float()"),
        (lambda: tulle.torch.register(DDP(made()), "topk", sead=1), "no option 'sead'; there are non_finite, seed"),
        (lambda: tulle.torch.register(made(), "topk"), "wrap it in DistributedDataParallel"),
        (lambda: tulle.torch.register(DDP(made()), "topk", roles={"wrods": "output"}), "roles name 'wrods'"),
        (lambda: tulle.torch.register(DDP(made()), "topk").load_state_dict({}), "no state of a rank"),
        (lambda: tulle.torch.register(DDP(made()), "topk").load_state_dict(None), "what state_dict() gave"),
        (lambda: tulle.torch.register(DDP(made()), "topk").load_state_dict({"state of rank 0": torch.zeros(3)}), "cut off"),
        (lambda: tulle.torch.register(DDP(made()), "topk", deadline=None), "leave it out"),
        (lambda: tulle.torch.all_reduce([1.0, 2.0]), "torch.as_tensor()"),
        (lambda: tulle.torch.all_reduce(torch.ones(2), op=dist.ReduceOp.MAX), "op='max'"),
        (lambda: tulle.torch.all_reduce(torch.ones(1).expand(3)), "tensor.contiguous()"),
        (lambda: tulle.torch.all_reduce(torch.sparse_coo_tensor([[1]], torch.ones(1, 0), (3, 0))), "tensor.to_dense()"),
        (lambda: wrapped(made(), optimizer=wrapped(made())), "already"),
        (lambda: wrapped(made(), optimizer=torch.optim.SGD(made().parameters(), lr=0.1)), "do not name"),
        (lambda: wrapped(one.parameters(), optimizer=sgd), "named_parameters()"),
        (lambda: wrapped(one, optimizer=torch.optim.LBFGS(one.parameters())), "another optimizer"),
        (lambda: wrapped(one).add_param_group({"params": []}), "add them before"),
        (lambda: tulle.torch.Local(DDP(one), sgd, "local2"), "ddp.module"),
        (lambda: tulle.torch.Local(made(), sgd, "local2"), "model.parameters()"),
    ]:
        try:
            make()
        except (ValueError, TypeError) as error:
            assert words in str(error), error
        else:
            raise AssertionError(words)


@check
def workers_of_a_data_loader_are_forked_while_ranks_are_connected():
    model, handle = train("topk:10%", steps=1)
    loader = torch.utils.data.DataLoader(list(range(8)), batch_size=2, num_workers=1)
    assert [each.tolist() for each in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    child = os.fork()
    if child == 0:
        try:
            handle.report()
        except tulle.UnsupportedError:
            os._exit(0)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    handle.report()


@check
def a_state_of_four_ranks_is_loaded_on_two():
    """The file was written by checks_of_four.py."""
    path = os.environ["CHECKPOINT"]
    arguments = {"weights_only": True} if torch.__version__ >= "2.6" else {}
    saved = torch.load(path + ".all", **arguments)
    parts = [torch.load(f"{path}.{rank}", **arguments) for rank in range(4)]
    residuals = torch.load(path + ".residuals", **arguments)
    for state in (saved, parts):
        ddp = DDP(made())
        handle = tulle.torch.register(ddp, "topk:5%,dense_below=100")
        handle.load_state_dict(state)
        # A mean over 2 ranks is twice as much of each as one over 4.
        assert torch.allclose(sum_over_ranks(handle.residual("second.weight")), residuals / 2, atol=1e-6)
        loss_of(ddp, 0).backward()
    if torch.__version__ >= "2.6":
        import torch.distributed.checkpoint as checkpoint

        checkpoint.save({"tulle": handle}, checkpoint_id=path + ".dcp")
        before = handle.residual("second.weight")
        loss_of(ddp, 1).backward()
        assert not torch.equal(before, handle.residual("second.weight"))
        checkpoint.load({"tulle": handle}, checkpoint_id=path + ".dcp")
        assert torch.equal(before, handle.residual("second.weight"))


@check
def replicas_of_a_sharded_model_are_summed():
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
    except ImportError:  # of another torch
        return
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))

    def begin(recipe):
        model = made()
        for layer in (model.first, model.second, model):
            fully_shard(layer, mesh=mesh["shard"])
        return model, tulle.torch.fsdp_hook(model, recipe, group=mesh["replicate"].get_group())

    def gradients(model):
        return [each.grad.to_local().clone() for each in model.parameters()]

    model, _ = begin("dense")
    loss_of(model, 0).backward()
    own = DDP(made())
    loss_of(own, 0).backward()
    for ours, ddp in zip(gradients(model), own.parameters()):
        assert torch.allclose(ours, ddp.grad, atol=1e-6)
    model, handle = begin("topk:1%")
    loss_of(model, 0).backward()
    assert same_on_all_ranks_of(gradients(model)) and handle.stats()["second"]["delivered"] <= 600
    again, other = begin("topk:1%")
    other.load_state_dict(handle.state_dict())
    for each in (model, again):
        each.zero_grad()
        loss_of(each, 1).backward()
    assert all(torch.equal(a, b) for a, b in zip(gradients(model), gradients(again))) and "second" in handle.report()


def same_on_all_ranks_of(tensors):
    flat = torch.cat([each.float().view(-1) for each in tensors])
    return torch.equal(sum_over_ranks(flat), 2 * flat)


class _Raises(torch.autograd.Function):
    """Leaves values alone, and lets back-propagation fail."""

    @staticmethod
    def forward(ctx, values):
        return values.clone()

    @staticmethod
    def backward(ctx, _):
        raise ArithmeticError("in the middle")


@check
def back_propagation_that_raises_leaves_gradients_to_those_who_send_them():
    """Buckets are on their way, from where they are, when everything that owns them goes."""
    model = made(width=600)  # DDP's first bucket holds a megabyte
    ddp = DDP(model, bucket_cap_mb=BUCKET_MB)
    handle = tulle.torch.register(ddp, "dense")
    loss_of(ddp, 0).backward()  # DDP rebuilds its buckets next
    model.words.register_forward_hook(lambda module, given, result: _Raises.apply(result))
    try:
        loss_of(ddp, 1).backward()
        raise AssertionError("nothing was raised")
    except ArithmeticError:
        pass
    assert 0 < handle._step.seen < handle._expected, handle._step.seen
    del handle, ddp, model
    gc.collect()
    others = [torch.full((600, 600), float("nan")) for _ in range(50)]
    is_ddp()
    assert len(others) == 50


@check
def a_thousand_steps_leak_nothing():
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    model = nn.Sequential(nn.Linear(100, 120), nn.Linear(120, 1))
    ddp = DDP(model)
    handle = tulle.torch.register(ddp, "topk:1%")
    given = torch.ones(1, 100)

    def step():
        ddp.zero_grad(set_to_none=True)
        ddp(given).sum().backward()

    for _ in range(200):
        step()
    gc.collect()
    before, objects = resident(), len(gc.get_objects())
    for _ in range(1000):
        step()
    gc.collect()
    grown, more = resident() - before, len(gc.get_objects()) - objects
    assert grown < 8 << 20 and more < 100, (grown, more)  # one gradient of each step would be 48 MB
    assert handle.stats()["0.weight"]["step"] == 1200


run()
