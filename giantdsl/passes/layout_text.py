"""Layouts and conversions for people to read: what `giantdsl show SPEC plan` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from giantdsl.ir.nodes import Call, Function, Op, Program, Repeat, StageMark, Statement, Value
from giantdsl.ir.types import FLOAT
from giantdsl.passes.layout import MESH_AXES, Rules
from giantdsl.passes.storage import Key, WeightLayout, owners_of

_BACKWARD = {
    "copy_to": ("copy", "all-reduce"),
    "reduce_from": ("all-reduce", "copy"),
    "all_gather": ("all-gather", "reduce-scatter"),
    "gather_whole": ("all-gather", "slice"),
    "scatter": ("slice", "all-gather"),
    "reduce_scatter": ("reduce-scatter", "all-gather"),
    "local": ("slice", ""),
}


def layout_lines(
    program: Program, rules: Rules, weights: Mapping[Key, WeightLayout]
) -> Iterator[str]:
    """A line for each operation of a program with its conversions, block by block.

    `22  rmsnorm  w[d]  -> [b@dp, s@tp, d]`: the line of the spec, the operation, how its weights
    are stored and how its result is divided. Conversions stand where they happen, indented.
    """
    writer = _Text(program, rules, weights)
    for function in program.functions:
        yield writer.head(function)
        yield from writer.statements(function.statements, "  ")


class _Text:
    def __init__(self, program: Program, rules: Rules, weights: Mapping[Key, WeightLayout]) -> None:
        self.program, self.rules, self.weights = program, rules, weights
        self.owners = owners_of(program)

    def head(self, function: Function) -> str:
        params = ", ".join(f"{p.name}{self.shape(p)}" for p in function.params)
        results = ", ".join(self.shape(r) for r in function.results)
        return f"{function.symbol}({params}) -> {results}"

    def shape(self, value: Value) -> str:
        """`[b@dp, s@tp, d]`."""
        if value.type.dtype != FLOAT and not value.type.axes:
            return value.type.dtype
        return f"[{', '.join(self._axis(value, axis) for axis in value.type.axes)}]"

    def _axis(self, value: Value, axis: str) -> str:
        mesh = [m for m in MESH_AXES if self.rules.layout(m, value) == axis]
        return "@".join([axis, *mesh])

    def statements(self, statements: Sequence[Statement], indent: str) -> Iterator[str]:
        for statement in statements:
            if isinstance(statement, Op):
                yield from self._op(statement, indent)
            elif isinstance(statement, Call):
                results = ", ".join(self.shape(v) for v in statement.results)
                call = f"{statement.member}: {statement.function.symbol}"
                yield f"{indent}{statement.span.line:4}  {call:<43} -> {results}"
            elif isinstance(statement, Repeat):
                yield f"{indent}{statement.span.line:4}  repeat {statement.count}"
                for body in statement.bodies:
                    yield from self.statements(body.statements, indent + "  ")
            else:
                assert isinstance(statement, StageMark)

    def _op(self, op: Op, indent: str) -> Iterator[str]:
        if op.kind in _BACKWARD:
            yield f"{indent}      {conversion(op.kind, str(op.attrs['mesh']), op.attrs.get('axis'))}"
            return
        if op.attrs.get("ring"):
            text = conversion("all_gather", "cp", op.attrs["t"])
            yield from [f"{indent}      {text}, in a ring"] * 2
        stored = "  ".join(self._weight(op, i) for i in range(len(op.weights)))
        results = ", ".join(self.shape(v) for v in op.results)
        yield f"{indent}{op.span.line:4}  {op.kind:<12} {stored:<30} -> {results}".rstrip()
        if op.attrs.get("exchange"):
            yield f"{indent}      all-to-all on ep (backward: all-to-all)"
        finish = op.attrs.get("finish", ())
        assert isinstance(finish, tuple)
        for step in finish:
            assert isinstance(step, tuple)
            yield f"{indent}      {conversion(str(step[0]), str(step[1]), step[2])}, then the bias"

    def _weight(self, op: Op, position: int) -> str:
        use = op.weights[position]
        layout = self.weights[self.owners[id(use.weight)]]
        divided = dict(layout.split)
        axes = [f"{a}@{divided[a]}" if a in divided else a for a in use.weight.axes]
        letter = "b" if use.role == "bias" else "w"
        return f"{letter}[{', '.join(axes)}]"


def conversion(kind: str, mesh_axis: str, axis: object) -> str:
    """`all-gather s on tp (backward: reduce-scatter s)`."""
    forward, backward = _BACKWARD[kind]
    name = f" {axis}" if axis else ""
    text = f"{forward}{name} on {mesh_axis}"
    return f"{text} (backward: {backward}{name})" if backward else text
