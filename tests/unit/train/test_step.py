"""The loss, gradients and update of one step, by the numbers of invariants 1, 2, 7 and 22."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from giantdsl.errors import SettingsError
from giantdsl.plan import InputInfo, ParameterInfo, Plan
from giantdsl.runtime.loader import build_module
from giantdsl.train.evaluate import evaluate
from giantdsl.train.objective import Objective, split_batch
from giantdsl.train.optim import MasterOptimizer, build_optimizer
from giantdsl.train.step import StepResult, accumulate_gradients, gradient_norm, take_step
from tests.unit.train.tiny import Counting, call, tiny_plan

CPU = torch.device("cpu")


class LawOne(nn.Module):
    """The model of invariant 1, with a loss that goes by rows beside it if asked for."""

    def __init__(self, rows_loss: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tok = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7)
        self.losses: dict[str, Tensor] = {}
        self.rows_loss = rows_loss

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        logits = self.head(self.tok(tokens))
        valid = (labels != -100).sum().clamp(min=1)
        total = F.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"
        )
        self.losses = {"lm": total / valid}
        if self.rows_loss:
            self.losses["z"] = logits.logsumexp(-1).square().mean()
        return logits

    def loss_counts(self, labels: Tensor) -> dict[str, Tensor]:
        return {"lm": (labels != -100).sum()}


def plan_of(module: nn.Module, *losses: str) -> Plan:
    tokens = InputInfo("tokens", ("b", "s"), (None, 4), "vocab", 7, (1,), False)
    labels = InputInfo("labels", ("b", "s"), (None, 4), "vocab", 7, (1,), True)
    parameters = tuple(
        ParameterInfo(n, tuple(p.shape), 1.0, p.dim() > 1, None)
        for n, p in module.named_parameters()
    )
    return Plan(
        "law", "", "law.py", "Law", (tokens, labels), ("logits",), parameters, 0,
        losses, losses[:1], (), 0, 4,
    )  # fmt: skip


TOKENS = torch.tensor([[1, 2, 3, 4], [5, 6, 1, 2]])
LABELS = torch.tensor([[2, 3, 4, 5], [6, -100, -100, -100]])
SGD = call("sgd", momentum=0.0, nesterov=False, decay=0.0)


def one_step(
    module: nn.Module,
    batch: dict[str, Tensor],
    microbatch: int | None,
    *,
    plan: Plan | None = None,
    clip: float = 0.0,
    learning_rate: float = 0.0,
    precision: str = "float32",
) -> tuple[StepResult, MasterOptimizer]:
    plan = plan or plan_of(module, "lm")
    optimizer = build_optimizer(SGD, plan, module, precision=precision)
    parts = split_batch(batch, plan.inputs, microbatch)
    objective = Objective(module, plan, CPU, torch.float32)
    noise = [None] * len(parts)
    result = take_step(objective, optimizer, parts, noise, learning_rate=learning_rate, clip=clip)
    return result, optimizer


@pytest.mark.parametrize("microbatch", [1, 2, None])
def test_law_one_the_loss_is_over_all_valid_tokens(microbatch: int | None) -> None:
    module = LawOne()
    result, optimizer = one_step(module, {"tokens": TOKENS, "labels": LABELS}, microbatch)
    assert result.loss == pytest.approx(1.804662, abs=1e-6)
    norm = optimizer.gradients()["head.weight"].norm().item()
    assert norm == pytest.approx(0.641720, abs=1e-6)


@pytest.mark.parametrize("microbatch", [1, None])
def test_no_valid_label_gives_loss_zero_and_gradients_zero(microbatch: int | None) -> None:
    batch = {"tokens": TOKENS, "labels": torch.full_like(LABELS, -100)}
    result, optimizer = one_step(LawOne(), batch, microbatch)
    assert (result.loss, result.grad_norm, result.bad) == (0.0, 0.0, None)
    assert all(not g.any() for g in optimizer.gradients().values())


def test_a_microbatch_without_valid_labels_adds_nothing() -> None:
    labels = LABELS.clone()
    labels[1] = -100
    whole, _ = one_step(LawOne(), {"tokens": TOKENS, "labels": labels}, None)
    parts, _ = one_step(LawOne(), {"tokens": TOKENS, "labels": labels}, 1)
    assert parts.loss == pytest.approx(whole.loss, rel=1e-6)
    assert parts.grad_norm == pytest.approx(whole.grad_norm, rel=1e-6)


def many_rows(rows: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(7, (rows, 4), generator=generator)
    labels = torch.randint(7, (rows, 4), generator=generator)
    labels[torch.rand(rows, 4, generator=generator) < 0.6] = -100
    return {"tokens": tokens, "labels": labels}


@pytest.mark.parametrize("microbatch", [1, 2, 3, 4, 6, 7, 100])
def test_law_two_microbatches_change_nothing_however_the_batch_is_cut(microbatch: int) -> None:
    results = []
    for size in (None, microbatch):
        module = LawOne(rows_loss=True).double()
        plan = plan_of(module, "lm", "z")
        result, optimizer = one_step(module, many_rows(7), size, plan=plan, precision="float64")
        results.append((result, optimizer.gradients()))
    (whole, whole_gradients), (cut, cut_gradients) = results
    assert cut.losses == pytest.approx(whole.losses, rel=1e-12)
    assert cut.grad_norm == pytest.approx(whole.grad_norm, rel=1e-12)
    for name, gradient in whole_gradients.items():
        torch.testing.assert_close(cut_gradients[name], gradient, rtol=1e-10, atol=1e-14)


def test_evaluation_has_the_same_definition() -> None:
    class TwoRows(Counting):
        def batch(self, indices: Any) -> dict[str, Tensor]:
            rows = list(indices)
            return {"tokens": TOKENS[rows], "labels": LABELS[rows]}

    module = LawOne()
    for batch, microbatch in ((2, None), (1, None), (2, 1)):
        found = evaluate(
            module, plan_of(module, "lm"), TwoRows(2), batch=batch, microbatch=microbatch
        )
        assert found.loss == pytest.approx(1.804662, abs=1e-6)
        assert found.num_tokens == 5
        assert found.perplexity == pytest.approx(math.exp(1.804662), rel=1e-5)
        assert found.nats_per_byte == pytest.approx(1.804662 / 2, abs=1e-6)
    assert module.training


def test_the_clip_shrinks_to_the_norm_and_leaves_smaller_gradients_alone() -> None:
    batch = {"tokens": TOKENS, "labels": LABELS}
    free, optimizer = one_step(LawOne(), batch, None)
    kept = {n: g.clone() for n, g in optimizer.gradients().items()}
    clipped, optimizer = one_step(LawOne(), batch, None, clip=free.grad_norm / 4)
    assert clipped.grad_norm == free.grad_norm
    for name, gradient in optimizer.gradients().items():
        torch.testing.assert_close(gradient, kept[name] / 4)
    _, optimizer = one_step(LawOne(), batch, None, clip=free.grad_norm * 1.01)
    for name, gradient in optimizer.gradients().items():
        assert torch.equal(gradient, kept[name])


def test_the_norm_is_over_all_gradients() -> None:
    assert gradient_norm([torch.tensor([3.0, 0.0]), torch.tensor([4.0])]).item() == 5.0
    assert gradient_norm([]).item() == 0.0


def test_large_finite_gradients_have_a_finite_norm_and_are_clipped() -> None:
    module = LawOne()
    objective = Objective(module, plan_of(module, "lm"), CPU, torch.float32)
    huge = torch.tensor([1e25, 1e25])
    assert gradient_norm([huge]).item() == pytest.approx(1e25 * 2**0.5, rel=1e-6)

    class Huge(Objective):
        def losses(self, part: Any, noise: Any = None) -> dict[str, Tensor]:
            return {n: v * 1e25 for n, v in objective.losses(part).items()}

    plan = plan_of(module, "lm")
    optimizer = build_optimizer(SGD, plan, module, precision="float32")
    batch = [{"tokens": TOKENS, "labels": LABELS}]
    result = take_step(
        Huge(module, plan, CPU, torch.float32),
        optimizer,
        batch,
        [None],
        learning_rate=0.1,
        clip=1.0,
    )
    assert result.bad is None
    assert math.isfinite(result.grad_norm)
    assert gradient_norm(list(optimizer.gradients().values())).item() == pytest.approx(
        1.0, rel=1e-5
    )


def test_law_seven_a_gradient_that_is_not_finite_skips_the_step_and_is_named() -> None:
    module = LawOne()
    before = {n: p.detach().clone() for n, p in module.named_parameters()}
    module.head.weight.register_hook(lambda g: torch.full_like(g, torch.nan))
    result, _optimizer = one_step(
        module, {"tokens": TOKENS, "labels": LABELS}, 1, learning_rate=0.5
    )
    assert result.bad == "gradient of `head.weight`"
    for name, value in module.named_parameters():
        assert torch.equal(value, before[name])


def test_a_loss_that_is_not_finite_is_named() -> None:
    module = LawOne()
    with torch.no_grad():
        module.tok.weight[1] = torch.inf
    result, _ = one_step(module, {"tokens": TOKENS, "labels": LABELS}, None, learning_rate=0.5)
    assert result.bad == "loss `lm`"
    assert torch.isfinite(module.head.weight).all()


class One(nn.Module):
    """One weight; the gradient of a microbatch is its row's `push`."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([start]))
        self.losses: dict[str, Tensor] = {}

    def forward(self, push: Tensor) -> Tensor:
        self.losses = {"l": (push.float() * self.w.float()).sum()}
        return self.w


def plan_of_one() -> Plan:
    push = InputInfo("push", ("b",), (None,), "float", None, (), True)
    parameter = ParameterInfo("w", (1,), 1.0, True, None)
    return Plan("one", "", "one.py", "One", (push,), ("w",), (parameter,), 1, ("l",), (), (), 0, 1)


def test_law_22_gradients_accumulate_in_float32_under_bf16() -> None:
    module = One(1.0)
    optimizer = build_optimizer(SGD, plan_of_one(), module, precision="bf16")
    assert module.w.dtype == torch.bfloat16

    class Unweighted(Objective):
        def shares(self, parts: Any) -> Any:
            return [{"": 1.0} for _ in parts]

    parts = [{"push": torch.tensor([1.0])}] + [{"push": torch.tensor([2.0**-9])}] * 256
    objective = Unweighted(module, plan_of_one(), CPU, torch.bfloat16)
    accumulate_gradients(objective, parts, [None] * len(parts))
    gradient = optimizer.gradients()["w"]
    assert gradient.dtype == torch.float32
    assert gradient.item() == 1.5


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_law_22_small_updates_are_not_lost_under_bf16(kind: str) -> None:
    module = One(1.0)
    config = SGD if kind == "sgd" else call("adamw", betas=(0.0, 0.0), eps=1e-30, decay=0.0)
    optimizer = build_optimizer(config, plan_of_one(), module, precision="bf16")
    objective = Objective(module, plan_of_one(), CPU, torch.bfloat16)
    for _ in range(100):
        parts = [{"push": torch.tensor([1.0])}]
        take_step(objective, optimizer, parts, [None], learning_rate=6e-4, clip=0.0)
    assert optimizer.masters["w"].dtype == torch.float32
    assert optimizer.masters["w"].item() == pytest.approx(0.94, abs=1e-5)
    assert module.w.item() == 0.94140625


def test_masters_keep_every_bit_of_the_initial_values() -> None:
    plan = tiny_plan()
    exact = dict(build_module(plan, seed=3).named_parameters())
    module = build_module(plan, seed=3)
    optimizer = build_optimizer(SGD, plan, module, precision="bf16")
    for name, master in optimizer.masters.items():
        assert torch.equal(master, exact[name])
        assert torch.equal(dict(module.named_parameters())[name], exact[name].to(torch.bfloat16))


def test_a_model_without_losses_and_data_without_labels_are_settings_errors() -> None:
    plan = tiny_plan()
    module = build_module(plan)
    with pytest.raises(SettingsError, match="model `law` has no loss"):
        Objective(LawOne(), plan_of(LawOne()), CPU, torch.float32)
    objective = Objective(module, plan, CPU, torch.float32)
    with pytest.raises(SettingsError, match="does not give `labels`"):
        objective.losses({"tokens": torch.zeros(1, 8, dtype=torch.long)})


def test_splitting_goes_along_the_batch_axis_wherever_it_is() -> None:
    late = InputInfo("x", ("s", "b"), (2, None), "int", None, (0,), False)
    table = InputInfo("table", ("s",), (2,), "float", None, (0,), False)
    batch = {"x": torch.arange(10).view(2, 5), "table": torch.zeros(2)}
    parts = split_batch(batch, (late, table), 2)
    assert [tuple(p["x"].shape) for p in parts] == [(2, 2), (2, 2), (2, 1)]
    assert all(p["table"] is batch["table"] for p in parts)
    assert torch.equal(torch.cat([p["x"] for p in parts], 1), batch["x"])


def test_the_norm_of_a_large_sparse_gradient_is_exact() -> None:
    """A float32 sum of squares is off by 1e-5 here, and differently for each layout."""
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(4096, 1, generator=draw).exp() ** 2
    gradient = torch.randn(4096, 256, generator=draw) * rows
    exact = torch.linalg.vector_norm(gradient.double()).item()
    assert gradient_norm([gradient]).item() == pytest.approx(exact, rel=1e-12)
