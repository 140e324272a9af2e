"""`loss_counts`: what the mean of each loss divides by, before the loss is computed."""

from __future__ import annotations

from giantdsl.emit.names import variable_name
from giantdsl.emit.wrap import wrap
from giantdsl.ir.nodes import Op, Program, Value


def loss_counts(program: Program, reserved: frozenset[str]) -> list[str]:
    """The method, indented, with an empty line before it; nothing where no loss counts labels."""
    counted = {name: count for name, count in program.counts.items() if count.kind == "valid"}
    if not counted:
        return []
    forward = program.forward
    producers = {id(r): s for s in forward.statements if isinstance(s, Op) for r in s.results}
    inputs = {id(p): variable_name(p.name, reserved) for p in forward.params}
    used: dict[str, None] = {}
    body: list[str] = ["counts = {}"]
    for name, count in counted.items():
        assert count.labels is not None
        labels, source = _expression(count.labels, producers, inputs)
        needs = [source]
        total = f"({labels} != {count.ignore}).sum()"
        if count.weight is not None:
            weight, other = _expression(count.weight, producers, inputs)
            needs.append(other)
            total = f"({weight} * ({labels} != {count.ignore})).sum()"
        used.update(dict.fromkeys(needs))
        test = " and ".join(f"{n} is not None" for n in dict.fromkeys(needs))
        body += [f"if {test}:", f'    counts["{name}"] = {total}']
    body.append("return counts")
    params = ", ".join(["self", *(f"{n}: Tensor | None = None" for n in used)])
    head = wrap(f"    def loss_counts({params}) -> dict[str, Tensor]:")
    doc = '        """What the mean of each loss divides by, to weigh microbatches."""'
    return ["", *head, doc, *(line for text in body for line in wrap(" " * 8 + text))]


def _expression(value: Value, producers: dict[int, Op], inputs: dict[int, str]) -> tuple[str, str]:
    """The labels as an expression of an input, and that input."""
    if id(value) in inputs:
        return inputs[id(value)], inputs[id(value)]
    op = producers[id(value)]
    inner, source = _expression(op.inputs[0], producers, inputs)
    axes = op.inputs[0].type.axes
    if op.kind == "rename":
        return inner, source
    if op.kind == "permute":
        order = ", ".join(str(axes.index(axis)) for axis in op.result.type.axes)
        return f"{inner}.permute({order})", source
    at = axes.index(str(op.attrs["axis"]))
    if op.kind == "pick":
        return f"{inner}[{':, ' * at}{op.attrs['at']}]", source
    start, stop = op.attrs["start"], op.attrs["stop"]
    return f"{inner}[{':, ' * at}{start or ''}:{'' if stop is None else stop}]", source
