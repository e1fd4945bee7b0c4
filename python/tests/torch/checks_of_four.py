"""Checks of four ranks: sums of tensors, optimizers, local steps, and a state that two ranks will load."""
import os

import torch
from checks import DDP, RANK, SIZE, check, distance, loss_of, made, run, same_on_all_ranks, sum_over_ranks
from torch import nn

import tulle
import tulle.torch


@check
def dense_tensors_are_summed_in_place():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64):
        tensor = torch.arange(6).view(2, 3).to(dtype) + RANK
        assert tulle.torch.all_reduce(tensor) is tensor
        assert torch.equal(tensor, (torch.arange(6).view(2, 3) * 4 + 6).to(dtype)), dtype
    turned = torch.arange(6.0).view(2, 3).t()
    tulle.torch.all_reduce(turned)
    assert torch.equal(turned, torch.arange(6.0).view(2, 3).t() * 4)
    holes = torch.arange(12.0).view(3, 4)[:, ::2]
    tulle.torch.all_reduce(holes)
    assert torch.equal(holes, torch.arange(12.0).view(3, 4)[:, ::2] * 4)


@check
def sparse_tensors_are_summed_with_empty_ranks_and_uneven_numbers_of_values():
    generator = torch.Generator().manual_seed(RANK)
    for shape, sparse_dim in (((1000,), 1), ((50, 8), 1), ((40, 5, 3), 2), ((30, 30), 2)):
        count = 0 if RANK == 2 else 7 * (RANK + 1)
        indices = torch.stack([torch.randint(0, shape[d], (count,), generator=generator) for d in range(sparse_dim)])
        values = torch.randint(-4, 5, (count, *shape[sparse_dim:]), generator=generator).float()
        tensor = torch.sparse_coo_tensor(indices, values, shape)  # an index may be there twice
        expected = sum_over_ranks(tensor.to_dense())
        work = tulle.torch.all_reduce(tensor, async_op=True)
        assert work.wait() is tensor and tensor.sparse_dim() == sparse_dim
        assert torch.equal(tensor.to_dense(), expected), shape
    nowhere = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.int64), torch.empty(0), (10,))
    assert tulle.torch.all_reduce(nowhere)._nnz() == 0


@check
def several_sums_are_in_flight():
    tensors = [torch.full((1000,), float(RANK + number)) for number in range(5)]
    works = [tulle.torch.all_reduce(each, async_op=True) for each in tensors]
    for number, work in enumerate(works):
        assert float(work.wait()[0]) == 4 * number + 6


@check
def an_optimizer_without_ddp_does_what_ddp_does():
    def train(recipe, sparse, ddp):
        model = made(sparse=sparse)
        called = DDP(model) if ddp else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if ddp:
            tulle.torch.register(called, recipe)
        else:
            optimizer = tulle.torch.DistributedOptimizer(optimizer, model, recipe)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        for step in range(4):
            optimizer.zero_grad()
            loss_of(called, step).backward()
            if not ddp and step == 1:
                optimizer.synchronize()
                nn.utils.clip_grad_norm_(model.second.parameters(), 100.0)
            optimizer.step()
            scheduler.step()
        assert isinstance(optimizer, torch.optim.SGD) and optimizer.param_groups[0]["lr"] < 0.01
        return model

    for recipe in ("dense", "topk:10%,dense_below=100"):
        for sparse in (False, True):
            apart = distance(train(recipe, sparse, True), train(recipe, sparse, False))
            assert apart < 1e-6, (recipe, sparse, apart)


@check
def an_optimizer_takes_gradients_that_only_some_ranks_have():
    model = made(sparse=True)
    optimizer = tulle.torch.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, "topk:50%")
    for step in range(3):
        optimizer.zero_grad(set_to_none=True)
        if RANK != 3:  # it has no data
            loss_of(model, step, RANK == 1 and step == 1).backward()
        optimizer.step()
    assert same_on_all_ranks(model) and distance(model, made(sparse=True)) > 0
    try:
        dense = tulle.torch.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
        loss_of(model, 0).backward()
        dense.step()
    except TypeError as error:
        assert "sparse=" in str(error)
    else:
        raise AssertionError("nobody said that it is sparse")


@check
def local_steps_end_in_the_same_weights():
    for recipe, every in (("sparseloco", 3), ("diloco", 2), ("dense", 1), ("topk:10%,dense_below=100", 2)):
        model = made(RANK)  # rank 0's weights are what counts
        local = tulle.torch.Local(model, torch.optim.Adam(model.parameters(), lr=0.01), recipe, every)
        assert same_on_all_ranks(model)
        for step in range(2 * every):
            if step == every + 1 and every > 1:
                assert not same_on_all_ranks(model)
            local.zero_grad()
            loss_of(model, step).backward()
            local.step()
        assert same_on_all_ranks(model) and distance(model, made(0)) > 0, recipe
        saved = local.state_dict()
        local.load_state_dict(saved)
        assert f"{2 * len(list(model.parameters()))} of" in local.report()


@check
def dense_local_steps_are_the_mean_of_the_weights():
    model, alone = made(), made()
    local = tulle.torch.Local(model, torch.optim.SGD(model.parameters(), lr=0.1), "local2")
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for step in range(4):
        for each, stepper in ((model, local), (alone, optimizer)):
            stepper.zero_grad()
            loss_of(each, step).backward()
            stepper.step()
        if step % 2 == 1:
            for ours, own in zip(model.parameters(), alone.parameters()):
                own.data = sum_over_ranks(own.detach()) / SIZE
                assert torch.allclose(ours, own, atol=1e-6)


@check
def the_outer_step_is_nesterov_on_what_ranks_moved():
    model, alone = made(), made()
    local = tulle.torch.Local(model, torch.optim.SGD(model.parameters(), lr=0.1), "diloco", every=2)
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    before = [each.detach().clone() for each in alone.parameters()]
    momentum = [torch.zeros_like(each) for each in before]
    for step in range(6):
        for each, stepper in ((model, local), (alone, optimizer)):
            stepper.zero_grad()
            loss_of(each, step).backward()
            stepper.step()
        if step % 2 == 1:
            for ours, own, start, kept in zip(model.parameters(), alone.parameters(), before, momentum):
                moved = sum_over_ranks(start - own.detach()) / SIZE
                kept.mul_(0.9).add_(moved)
                start.sub_(0.7 * (moved + 0.9 * kept))
                own.data = start.clone()
                assert torch.allclose(ours, own, atol=1e-5), step


@check
def a_model_that_is_sharded_and_replicated_is_summed():
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
    except ImportError:  # of another torch
        return
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))

    def begin(recipe):
        model = made()
        for layer in (model.first, model.second, model):
            fully_shard(layer, mesh=mesh["shard"])
        return model, tulle.torch.fsdp_hook(model, recipe, group=mesh["replicate"].get_group())

    model, _ = begin("dense")
    loss_of(model, 0).backward()
    own = DDP(made())
    loss_of(own, 0).backward()
    for ours, ddp in zip(model.parameters(), own.parameters()):
        assert torch.allclose(ours.grad.full_tensor(), ddp.grad, atol=1e-6)
    model, handle = begin("topk:1%")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    whole = nn.ParameterList([each.full_tensor().detach() for each in model.parameters()])
    assert same_on_all_ranks(whole) and 0 < handle.stats()["second"]["delivered"] <= 600


@check
def a_state_is_saved_and_goes_on_bit_for_bit():
    def begin():
        ddp = DDP(made())
        return ddp, tulle.torch.register(ddp, "topk:5%,dense_below=100", reproducible=True)

    (first, handle), (second, other) = begin(), begin()
    for step in range(3):
        loss_of(first, step).backward()
    other.load_state_dict(handle.state_dict())
    path = os.environ["CHECKPOINT"]
    torch.save(handle.state_dict(), f"{path}.{RANK}")
    everyone = handle.state_dict(all_ranks=True)
    residuals = sum_over_ranks(handle.residual("second.weight"))
    if RANK == 0:
        torch.save(everyone, f"{path}.all")
        torch.save(residuals, f"{path}.residuals")
    for ddp in (first, second):
        ddp.zero_grad()
        loss_of(ddp, 3).backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(first.parameters(), second.parameters()))
    assert torch.equal(handle.residual("second.weight"), other.residual("second.weight"))


run()
