"""Names of a spec that Python or the emitted file has another use for."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import Tensor, nn

from giantdsl.attrs import Config
from giantdsl.driver import compile_spec, make_plan
from giantdsl.plan import Plan
from giantdsl.planning import make_parallel_plan
from giantdsl.runtime.loader import build_module, load_source
from giantdsl.source import SourceFile
from giantdsl.train.objective import Objective
from giantdsl.train.optim import build_optimizer
from giantdsl.train.step import StepResult, take_step

TOKENS = ("topk", "rope")
FLOATS = ("dropout", "noise", "class", "self", "topk_", "linear", "torch", "F", "range", "i")
LABELS = "attention"
PLAIN = {name: f"in{k}" for k, name in enumerate((*TOKENS, *FLOATS, LABELS))}

_SPEC = """
model names
dims {
  b: batch;  s: seq = 6;  slot: ragged
  d = 8;  heads = 2;  hd = d / heads;  vocab = 11;  layers = 2;  experts = 2
}
block moe(x[b, s, d]) -> [b, s, d] {
  route = topk(softmax(linear(x) as router -> [b, s, experts], over=experts), 1, over=experts)
  h = linear(dispatch(x, route) -> [experts, slot, d], per=experts) as up -> [experts, slot, d]
  return combine(h, route)
}
block layer(x[b, s, d]) -> [b, s, d] {
  q, k, v = linear(x) -> [b, s, heads, hd], [b, s, heads, hd], [b, s, heads, hd]
  o = sdpa(rope(q), rope(k), v, causal=true)
  return dropout(x + (linear(o) as out -> [b, s, d]), 0.1)
}
forward(INPUTS, LABELS[b, s]: vocab) -> [b, s, vocab] {
  x = EMBEDDED
  x = SUM
  fold = dropout(x, 0.2)
  repeat layers { x = layer(x) }
  x = moe(x) as moe
  logits = linear(rmsnorm(x + fold + WEIGHED)) as head -> [b, s, vocab]
  loss lm = cross_entropy(logits, LABELS)
  return logits
}
parallel { dp = 1;  pp = 2;  stages = [1, 1] }
"""


def spec_text(names: dict[str, str]) -> str:
    tokens, floats = [names[n] for n in TOKENS], [names[n] for n in FLOATS]
    inputs = [*(f"{n}[b, s]: vocab" for n in tokens), *(f"{n}[b, s, d]" for n in floats)]
    embedded = (f"(embedding({n}) as tok{i} -> [b, s, d])" for i, n in enumerate(tokens))
    words = {
        "INPUTS": ", ".join(inputs),
        "EMBEDDED": " + ".join(embedded),
        "SUM": " + ".join(["x", *floats[: len(floats) // 2]]),
        "WEIGHED": " + ".join(f"{k} * {n}" for k, n in enumerate(floats, 2)),
        "LABELS": names[LABELS],
    }
    text = _SPEC
    for word, written in words.items():
        text = text.replace(word, written)
    return text


TAKEN_TEXT = spec_text({name: name for name in PLAIN})


def plan_of(text: str) -> Plan:
    return make_plan(compile_spec(SourceFile("names.giant", text)))


@pytest.fixture(scope="module")
def taken() -> Plan:
    return plan_of(TAKEN_TEXT)


def batch() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    numbers = {n: torch.randint(11, (3, 6), generator=generator) for n in (*TOKENS, LABELS)}
    return numbers | {n: torch.randn(3, 6, 8, generator=generator).double() for n in FLOATS}


def step(plan: Plan, given: dict[str, Tensor]) -> tuple[StepResult, nn.Module]:
    """One step in microbatches of two samples and one."""
    module = build_module(plan, seed=1, dtype=torch.float64).train()
    optimizer = build_optimizer(Config("sgd"), plan, module, precision="float64")
    objective = Objective(module, plan, torch.device("cpu"), torch.float64)
    parts = [{n: t[rows] for n, t in given.items()} for rows in (slice(2), slice(2, 3))]
    noise: list[Tensor | None] = [torch.tensor([1, 2]), torch.tensor([3])]
    result = take_step(objective, optimizer, parts, noise, learning_rate=0.1, clip=1.0)
    return result, module


def test_a_step_does_not_depend_on_what_inputs_are_called(taken: Plan) -> None:
    found, module = step(taken, batch())
    wanted, other = step(plan_of(spec_text(PLAIN)), {PLAIN[n]: t for n, t in batch().items()})
    assert found == wanted
    for mine, theirs in zip(module.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_the_parameters_of_forward_are_those_of_the_plan(taken: Plan) -> None:
    forward = getattr(load_source(taken.source, "names.py"), taken.class_name).forward
    names = list(inspect.signature(forward).parameters)
    assert names == ["self", *(info.keyword for info in taken.inputs), "noise"]
    renamed = {info.name: info.renamed for info in taken.inputs if info.renamed}
    assert renamed["topk"] == "topk_" and renamed["topk_"] == "topk__"
    assert not {"linear", "i"} & renamed.keys(), "nothing in this file is called that"


def test_the_file_tries_itself(taken: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(taken.source, "names.py", "exec"), {"__name__": "__main__"})
    assert "loss lm" in capsys.readouterr().out


def test_stages_take_what_their_plan_says() -> None:
    plan = make_parallel_plan(compile_spec(SourceFile("names.giant", TAKEN_TEXT)))
    assert [stage.receives for stage in plan.stages] == [(), ("fold", "x")]
    for stage in plan.stages:
        forward = getattr(load_source(stage.source, stage.source_name), stage.class_name).forward
        names = inspect.signature(forward).parameters.keys() - {"self", "noise"}
        renamed = dict(stage.renamed)
        assert names == {renamed.get(n, n) for n in (*stage.inputs, *stage.receives)}
    assert dict(plan.stages[1].renamed)["attention"] == "attention_", "stage files import one"


def test_the_index_of_a_loop_does_not_hide_a_value(taken: Plan) -> None:
    assert "for j, layer in enumerate(self.layer):" in taken.source
