"""What ranks do in test_c10d.py: functions of (rank, world) that raise or return what they saw."""

from __future__ import annotations

import os
import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

DTYPES = [
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
]  # fmt: skip
COUNTS = [0, 1, 17, 4099, 300_007]


def values(rank: int, count: int, dtype: torch.dtype) -> Tensor:
    """Small whole numbers: their sums and products are exact in every type."""
    return ((torch.arange(count) * (rank + 3)) % 3 + 1).to(dtype)


def plain(op: dist.ReduceOp.RedOpType, world: int, count: int, dtype: torch.dtype) -> Tensor:
    """The reduction by a plain loop."""
    total = values(0, count, dtype)
    for rank in range(1, world):
        other = values(rank, count, dtype)
        match op:
            case dist.ReduceOp.SUM:
                total = total + other
            case dist.ReduceOp.PRODUCT:
                total = total * other
            case dist.ReduceOp.MIN:
                total = torch.minimum(total, other)
            case dist.ReduceOp.MAX:
                total = torch.maximum(total, other)
            case dist.ReduceOp.BAND:
                total = total & other
            case dist.ReduceOp.BOR:
                total = total | other
            case dist.ReduceOp.BXOR:
                total = total ^ other
    return total


def reductions(rank: int, world: int) -> None:
    ops = dist.ReduceOp
    for dtype in DTYPES:
        named = [ops.SUM, ops.PRODUCT, ops.MIN, ops.MAX]
        if not dtype.is_floating_point:
            named += [ops.BAND, ops.BOR, ops.BXOR]
        for op in named:
            for count in COUNTS:
                x = values(rank, count, dtype)
                dist.all_reduce(x, op)
                assert torch.equal(x, plain(op, world, count, dtype)), (dtype, op, count)
                y = values(rank, count, dtype)
                dist.reduce(y, 1, op)
                if rank == 1:
                    assert torch.equal(y, x), (dtype, op, count)
                whole = values(rank, count * world, dtype)
                own = torch.empty(count, dtype=dtype)
                dist.reduce_scatter_tensor(own, whole, op)
                wanted = plain(op, world, count * world, dtype).chunk(world)
                assert count == 0 or torch.equal(own, wanted[rank]), (dtype, op, count)


def averages_and_factors(rank: int, world: int) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        x = values(rank, 1000, dtype)
        dist.all_reduce(x, dist.ReduceOp.AVG)
        total = plain(dist.ReduceOp.SUM, world, 1000, dtype)
        assert torch.equal(x, total / world)
    y = torch.full((10,), float(rank))
    dist.all_reduce(y, dist._make_nccl_premul_sum(2.0))
    assert torch.equal(y, torch.full((10,), 2.0 * sum(range(world))))
    z = torch.full((7,), complex(rank, 1.0), dtype=torch.complex64)
    dist.all_reduce(z)
    assert torch.equal(z, torch.full((7,), complex(sum(range(world)), world)))


def moves(rank: int, world: int) -> None:
    for dtype in [*DTYPES, torch.bool, torch.complex64, torch.float8_e4m3fn]:
        for count in COUNTS:
            mine = values(rank, count, torch.float32).to(dtype)
            everyone = [values(r, count, torch.float32).to(dtype) for r in range(world)]
            found = [torch.empty(count, dtype=dtype) for _ in range(world)]
            dist.all_gather(found, mine)
            assert all(same(a, b) for a, b in zip(found, everyone, strict=True))
            joined = torch.empty(count * world, dtype=dtype)
            dist.all_gather_into_tensor(joined, mine)
            assert all(same(a, b) for a, b in zip(parts(joined, world), everyone, strict=True))
            for root in range(world):
                x = mine.clone()
                dist.broadcast(x, root)
                assert same(x, everyone[root])
            boxes = [torch.empty_like(mine) for _ in range(world)] if rank == 2 else None
            dist.gather(mine, boxes, 2)
            assert boxes is None or all(same(a, b) for a, b in zip(boxes, everyone, strict=True))
            back = torch.empty_like(mine)
            dist.scatter(back, boxes, 2)
            assert same(back, mine)


def same(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def parts(joined: Tensor, world: int) -> list[Tensor]:
    return list(joined.view(world, -1)) if joined.numel() else [joined] * world


def all_to_all(rank: int, world: int) -> None:
    for scale in (1, 5000):
        sent = [(rank + 2 * to) % 3 * scale for to in range(world)]
        received = [(source + 2 * rank) % 3 * scale for source in range(world)]
        x = torch.cat([torch.full((n, 2), float(rank * 10 + to)) for to, n in enumerate(sent)])
        y = torch.empty(sum(received), 2)
        dist.all_to_all_single(y, x, received, sent)
        wanted = [torch.full((n, 2), float(s * 10 + rank)) for s, n in enumerate(received)]
        assert torch.equal(y, torch.cat(wanted))
        out = [torch.empty_like(w) for w in wanted]
        dist.all_to_all(out, list(x.split(sent)))
        assert all(torch.equal(a, b) for a, b in zip(out, wanted, strict=True))
    even = torch.arange(world * 3.0) + 100 * rank
    found = torch.empty_like(even)
    dist.all_to_all_single(found, even)
    wanted_even = [torch.arange(rank * 3.0, rank * 3 + 3) + 100 * s for s in range(world)]
    assert torch.equal(found, torch.cat(wanted_even))


def not_contiguous(rank: int, world: int) -> None:
    x = torch.arange(12.0).view(3, 4).t() + rank
    assert not x.is_contiguous()
    dist.all_reduce(x)
    assert torch.equal(x, (torch.arange(12.0).view(3, 4).t() * world) + sum(range(world)))
    y = torch.zeros(4, 6)[:, ::2]
    dist.broadcast(y if rank else y.add_(7.0), 0)
    assert torch.equal(y, torch.full((4, 3), 7.0))


def sparse(rank: int, world: int) -> None:
    indices = torch.tensor([[0, rank + 1], [1, 2]])
    x = torch.sparse_coo_tensor(indices, torch.tensor([1.0, float(rank)]), (world + 1, 3))
    dist.all_reduce(x)
    wanted = torch.zeros(world + 1, 3)
    wanted[0, 1] = world
    for r in range(world):
        wanted[r + 1, 2] += r
    assert torch.equal(x.to_dense(), wanted)


def order_and_futures(rank: int, world: int) -> None:
    tensors = [torch.full((n,), float(rank)) for n in (3, 100_000, 5, 200_000, 1)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    seen: list[float] = []
    done = works[1].get_future().then(lambda f: seen.append(f.value()[0][0].item()))
    for work in reversed(works):
        work.wait()
    done.wait()
    total = float(sum(range(world)))
    assert all(torch.equal(t, torch.full_like(t, total)) for t in tensors) and seen == [total]
    assert all(work.is_completed() for work in works)
    # What nobody waits for gets done as well.
    x = torch.ones(50_000)
    work = dist.all_reduce(x, async_op=True)
    deadline = time.monotonic() + 20
    while not work.is_completed():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert torch.equal(x, torch.full_like(x, float(world)))


def coalesced(rank: int, world: int) -> None:
    tensors = [torch.full((n,), float(rank)) for n in (3, 10, 600_000)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    assert all(t[0].item() == sum(range(world)) for t in tensors)
    ins = [torch.full((2,), float(rank)), torch.full((5,), float(-rank))]
    outs = [torch.empty(2 * world), torch.empty(5 * world)]
    with dist._coalescing_manager():
        for out, part in zip(outs, ins, strict=True):
            dist.all_gather_into_tensor(out, part)
    assert torch.equal(outs[1].view(world, 5)[:, 0], -torch.arange(float(world)))


def messages(rank: int, world: int) -> None:
    after, before = (rank + 1) % world, (rank - 1) % world
    for count in (0, 1, 1000, 40_000, 1_000_000):
        out, found = torch.full((count,), float(rank)), torch.empty(count)
        ops = [dist.P2POp(dist.isend, out, after), dist.P2POp(dist.irecv, found, before)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert torch.equal(found, torch.full((count,), float(before)))
    # Tags in another order than they were sent in.
    if rank == 0:
        for tag in range(5):
            dist.isend(torch.full((10,), float(tag)), 1, tag=tag).wait()
    if rank == 1:
        for tag in reversed(range(5)):
            x = torch.empty(10)
            dist.recv(x, 0, tag=tag)
            assert x[0].item() == tag
    # From anyone.
    if rank == 0:
        senders = set()
        for _ in range(world - 1):
            x = torch.empty(3)
            source = dist.recv(x)
            assert x[0].item() == source
            senders.add(source)
        assert senders == set(range(1, world))
    else:
        dist.send(torch.full((3,), float(rank)), 0)
    # A collective between a send and its receive.
    if rank == 2:
        dist.send(torch.ones(4), 3)
    dist.barrier()
    if rank == 3:
        x = torch.zeros(4)
        dist.recv(x, 2)
        assert x[0].item() == 1.0
    box: list[Any] = [{"rank": 0}] if rank == 0 else [None]
    dist.broadcast_object_list(box, 0)
    assert box == [{"rank": 0}]


def subgroups(rank: int, world: int) -> None:
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3]), dist.new_group([3, 1])]
    for group, members in zip(halves, ([0, 1], [2, 3], [1, 3]), strict=True):
        if rank in members:
            x = torch.full((1000,), float(rank))
            dist.all_reduce(x, group=group)
            assert x[0].item() == sum(members)
    for group in halves:
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(group)


def leaves_nothing(rank: int, world: int) -> tuple[int, int, int, int]:
    """Threads and descriptors before and after twenty groups."""

    def use(group: dist.ProcessGroup) -> None:
        dist.all_reduce(torch.ones(100_000), group=group, async_op=True).wait()
        if rank == 0:
            dist.send(torch.ones(100_000), 1, group=group)
        elif rank == 1:
            dist.recv(torch.ones(100_000), 0, group=group)
        dist.destroy_process_group(group)

    use(dist.new_group())
    before = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        use(dist.new_group())
    after = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    return (*before, *after)


def mismatch(rank: int, world: int) -> str:
    group = dist.new_group(timeout=timedelta(seconds=20))
    try:
        dist.all_reduce(torch.ones(10 if rank != 2 else 11), group=group)
    except dist.DistBackendError as error:
        return str(error)
    return "no error"


def late(rank: int, world: int) -> str:
    group = dist.new_group(timeout=timedelta(seconds=1))
    if rank == 3:
        time.sleep(3)
        return ""
    started = time.monotonic()
    try:
        dist.all_reduce(torch.ones(10), group=group)
    except dist.DistBackendError as error:
        assert time.monotonic() - started < 3
        return str(error)
    return "no error"


def bad_arguments(rank: int, world: int) -> list[str]:
    said = []
    for call in (
        lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.BAND),
        lambda: dist.all_reduce(torch.ones(3, dtype=torch.int32), dist.ReduceOp.AVG),
        lambda: dist.all_gather_into_tensor(torch.ones(3), torch.ones(3)),
        lambda: dist.all_reduce(torch.ones(3).to(torch.float8_e4m3fn)),
    ):
        try:
            call()
        except (RuntimeError, ValueError) as error:
            said.append(str(error).splitlines()[0])
        else:
            said.append("no error")
    return said


def monitored(rank: int, world: int) -> str:
    # The function of torch.distributed refuses every backend but gloo.
    dist.group.WORLD.monitored_barrier(timedelta(seconds=20))
    group = dist.new_group()
    if rank == 2:
        time.sleep(2)
        return ""
    try:
        group.monitored_barrier(timedelta(seconds=1))
    except RuntimeError as error:
        return str(error)
    return "no error"


def many_threads(rank: int, world: int) -> None:
    """Two groups, each in a thread of its own."""
    groups = [dist.new_group(), dist.new_group()]
    totals: dict[int, float] = {}

    def work(index: int) -> None:
        x = torch.full((2000,), 1.0)
        for _ in range(50):
            dist.all_reduce(x, dist.ReduceOp.AVG, group=groups[index])
        totals[index] = x.sum().item()

    threads = [threading.Thread(target=work, args=(i,)) for i in (0, 1)]
    for thread in threads if rank % 2 else reversed(threads):
        thread.start()
    for thread in threads:
        thread.join()
    assert totals == {0: 2000.0, 1: 2000.0}


def observed(rank: int, world: int) -> tuple[dict[str, Any], list[str]]:
    for _ in range(3):
        dist.all_reduce(torch.ones(100))
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    return backend.counters(), [entry["state"] for entry in backend.records()]


# ---- what builds on it --------------------------------------------------------------------------


def _model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))


def _batch(world: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(5)
    return torch.randn(2 * world, 8), torch.randn(2 * world, 4)


def _one_process(world: int) -> dict[str, Tensor]:
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        x, y = _batch(world)
        optimizer.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        optimizer.step()
    return {name: p.detach() for name, p in model.named_parameters()}


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, world: int) -> None:
    x, y = (t[2 * rank : 2 * rank + 2] for t in _batch(world))
    for _ in range(3):
        optimizer.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        optimizer.step()


def _check(found: dict[str, Tensor], world: int) -> None:
    for name, wanted in _one_process(world).items():
        torch.testing.assert_close(found[name], wanted, rtol=1e-5, atol=1e-6)


def ddp(rank: int, world: int) -> None:
    model = _model()
    wrapped = nn.parallel.DistributedDataParallel(model)
    _train(wrapped, torch.optim.SGD(wrapped.parameters(), 0.1), rank, world)
    _check(dict(model.named_parameters()), world)


def fsdp2(rank: int, world: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = _model()
    mesh = init_device_mesh("cpu", (world,))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    _train(model, torch.optim.SGD(model.parameters(), 0.1), rank, world)
    _check({name: p.full_tensor() for name, p in model.named_parameters()}, world)


def zero_redundancy(rank: int, world: int) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = _model()
    wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.SGD, lr=0.1)
    _train(wrapped, optimizer, rank, world)
    _check(dict(model.named_parameters()), world)


def dtensors(rank: int, world: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(0)
    whole = torch.randn(8, 12)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(rows.full_tensor(), whole)
    columns = rows.redistribute(mesh, [Shard(1)])
    assert torch.equal(columns.to_local(), whole.chunk(world, 1)[rank])
    partial = DTensor.from_local(whole * (rank + 1), mesh, [Partial()])
    total = whole * sum(range(1, world + 1))
    summed = partial.redistribute(mesh, [Replicate()]).to_local()
    torch.testing.assert_close(summed, total)
    scattered = partial.redistribute(mesh, [Shard(0)]).to_local()
    torch.testing.assert_close(scattered, total.chunk(world)[rank])


def functional(rank: int, world: int) -> None:
    import torch.distributed._functional_collectives as funcol

    group = list(range(world))
    x = torch.full((world, 3), float(rank))
    assert torch.equal(
        funcol.wait_tensor(funcol.all_reduce(x, "sum", group)),
        torch.full((world, 3), float(sum(group))),
    )
    gathered = funcol.wait_tensor(funcol.all_gather_tensor(x[:1], 0, group))
    assert torch.equal(gathered[:, 0], torch.arange(float(world)))
    part = funcol.wait_tensor(funcol.reduce_scatter_tensor(x, "sum", 0, group))
    assert torch.equal(part, torch.full((1, 3), float(sum(group))))
    mixed = funcol.wait_tensor(funcol.all_to_all_single(x, None, None, group))
    assert torch.equal(mixed[:, 0], torch.arange(float(world)))


def checkpoints(rank: int, world: int, folder: str) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (world,))
    whole = torch.arange(32.0).view(8, 4)
    dcp.save({"x": distribute_tensor(whole, mesh, [Shard(0)])}, checkpoint_id=folder)
    found = {"x": distribute_tensor(torch.zeros(8, 4), mesh, [Shard(1)])}
    dcp.load(found, checkpoint_id=folder)
    assert torch.equal(found["x"].full_tensor(), whole)


def pipelining(rank: int, world: int) -> None:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    torch.manual_seed(1)
    layers = [nn.Linear(6, 6) for _ in range(world)]
    stage = PipelineStage(layers[rank], rank, world, torch.device("cpu"))
    schedule = Schedule1F1B(stage, 4, loss_fn=lambda out, y: ((out - y) ** 2).mean())
    torch.manual_seed(2)
    x, y = torch.randn(8, 6), torch.randn(8, 6)
    if rank == 0:
        schedule.step(x)
    elif rank == world - 1:
        schedule.step(target=y)
    else:
        schedule.step()
    ours = layers[rank].weight.grad.clone()
    for layer in layers:
        layer.weight.grad = None
    whole = nn.Sequential(*layers)
    ((whole(x) - y) ** 2).mean().backward()
    torch.testing.assert_close(ours, layers[rank].weight.grad, rtol=1e-4, atol=1e-6)
