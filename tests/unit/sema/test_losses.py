"""Losses: what they divide by, which inputs only they need, what they may be made of."""

from __future__ import annotations

import pytest

from giantdsl.ir.nodes import Count, Program

from .helpers import MODELS, codes, forward, function_of, ops_of, program_of

LOGITS = "logits = linear(x) -> [b, s, vocab]\n"


def counts(body: str, rest: str = "") -> dict[str, Count]:
    return program_of(forward(f"{LOGITS}{body}\nreturn x", rest=rest)).counts


def test_cross_entropy_counts_valid_labels() -> None:
    found = counts("loss lm = cross_entropy(logits, labels, ignore=-1)")["lm"]
    assert (found.kind, found.ignore, found.weight) == ("valid", -1, None)
    assert found.labels is not None
    assert found.labels.name == "labels"


def test_other_losses_count_rows() -> None:
    for loss in ("z_loss(logits)", "mse(x, x)", "mean(x, over=[b, s, d])", "2 * z_loss(logits)"):
        assert counts(f"loss a = {loss}") == {"a": Count("rows")}, loss


def test_weights_of_labels_are_counted() -> None:
    text = forward(f"{LOGITS}loss lm = cross_entropy(logits, labels, weight=w)\nreturn x").replace(
        "keep[b, s]: bool", "w[b, s]"
    )
    found = program_of(text).counts["lm"]
    assert found.weight is not None
    assert found.weight.name == "w"


def test_a_loss_that_does_not_depend_on_the_batch_has_no_count() -> None:
    assert counts("loss size = mean(param() as p -> [d], over=d)") == {}


def test_labels_may_be_a_part_of_an_input() -> None:
    body = """
    next[b, t, d] = x[s=8:]
    wanted[b, t] = labels[s=:8]
    loss lm = cross_entropy(linear(next) as head -> [b, t, vocab], wanted)
    """
    found = counts(body)["lm"]
    assert found.labels is not None
    assert found.labels.type.axes == ("b", "t")


def test_labels_in_another_order_are_turned() -> None:
    text = forward(f"{LOGITS}loss lm = cross_entropy(logits, labels)\nreturn x")
    text = text.replace("labels[b, s]", "labels[s, b]")
    program = program_of(text)
    [op] = ops_of(program.forward, "cross_entropy")
    assert op.inputs[1].type.axes == ("b", "s")
    count = program.counts["lm"]
    assert count.labels is program.forward.params[1]


def test_labels_of_a_block_are_those_of_its_caller() -> None:
    rest = """
    block head(x[b, s, d], wanted[b, s]: vocab) -> [b, s, d] {
      loss lm = cross_entropy(linear(x) as out -> [b, s, vocab], wanted)
      return x
    }
    """
    program = program_of(forward("return head(x, labels)", rest=rest))
    assert program.counts["lm"].labels is program.forward.params[1]
    assert function_of(program, "Head").losses[0][0] == "lm"


def test_one_name_is_one_sum() -> None:
    body = f"{LOGITS}loss a = z_loss(logits)\nloss a = mse(x, x)\nreturn x"
    program = program_of(forward(body))
    assert [name for name, _ in program.forward.losses] == ["a"]
    assert len(ops_of(program.forward, "add")) == 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("loss a = cross_entropy(logits, labels) + z_loss(logits)", "G227"),
        ("loss a = cross_entropy(logits, labels)\nloss a = z_loss(logits)", "G227"),
        ("loss a = cross_entropy(logits, where(keep, labels, tokens))", "G227"),
        ("loss a = x", "G212"),
        ("loss a = mean(x, over=[s, d])", "G212"),
        ("loss a = 3", "G212"),
        ("loss a = mean(x, over=b)", "G228"),
        ("loss a = sum(x, over=[b, s, d])", "G228"),
        ("loss a = exp(z_loss(logits))", "G228"),
        ("loss a = z_loss(logits) ** 2", "G228"),
        ("loss a = 1 / z_loss(logits)", "G228"),
        ("loss a = z_loss(logits) * z_loss(logits)", "G228"),
        ("loss a = cross_entropy(x, labels)", "G223"),
        ("loss a = cross_entropy(logits, keep)", "G223"),
        ("loss a = cross_entropy(logits[s=0], labels)", "G223"),
    ],
)
def test_what_a_loss_may_not_be(body: str, code: str) -> None:
    assert codes(forward(f"{LOGITS}{body}\nreturn x")) == [code]


def loss_only(program: Program) -> set[str]:
    return {program.forward.params[i].name for i in program.forward.loss_only}


def test_inputs_that_only_losses_need() -> None:
    body = f"{LOGITS}loss lm = cross_entropy(logits, labels)\nreturn logits"
    assert loss_only(program_of(forward(body, "[b, s, vocab]"))) == {"labels"}
    body = f"{LOGITS}loss lm = cross_entropy(logits, labels)\nreturn x + embedding(labels) as e -> [b, s, d]"
    assert loss_only(program_of(forward(body))) == set()


def test_inputs_that_only_losses_in_blocks_and_loops_need() -> None:
    rest = """
    block layer(x[b, s, d], wanted[b, s]: vocab, keep[b, s]: bool) -> [b, s, d] {
      x = where(keep, linear(x) as l -> [b, s, d], x)
      loss deep = cross_entropy(linear(x) as out -> [b, s, vocab], wanted)
      return x
    }
    """
    program = program_of(forward("repeat 2 { x = layer(x, labels, keep) }\nreturn x", rest=rest))
    assert loss_only(program) == {"labels"}
    layer = function_of(program, "Layer")
    assert {layer.params[i].name for i in layer.loss_only} == {"wanted"}


def test_inputs_that_nothing_needs_are_not_loss_only() -> None:
    assert loss_only(program_of(forward("return x"))) == set()


def test_the_inputs_of_the_models_that_only_losses_need() -> None:
    expected = {
        "alternating": {"labels"}, "bert": {"labels", "follows"}, "custom": {"labels", "weight"},
        "gpt2": {"labels"}, "llama3": {"labels"}, "mixtral": {"labels"}, "t5": {"labels"},
        "vit": {"label"},
    }  # fmt: skip
    found = {p.stem: loss_only(program_of(p.read_text(encoding="utf-8"))) for p in MODELS}
    assert {name: found[name] for name in expected} == expected


def test_labels_are_taken_outside_of_loops() -> None:
    body = """
    wanted[b, t] = labels[s=:8]
    repeat 2 {
      part[b, t, d] = x[s=:8]
      loss lm = cross_entropy(linear(part) as head -> [b, t, vocab], wanted)
    }
    return x
    """
    assert program_of(forward(body)).counts["lm"].kind == "valid"
    lines = body.strip().split("\n")
    lines[0], lines[1] = lines[1], lines[0]
    assert codes(forward("\n".join(lines))) == ["G227"]
