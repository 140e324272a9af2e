"""What a program does, read off its operations."""

from __future__ import annotations

import math
from collections.abc import Iterator

from giantdsl.attrs import Attr
from giantdsl.ir.nodes import Call, Op, Program, Repeat, Statement
from giantdsl.ir.parameters import extent

ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu", "tanh", "sigmoid")
_NOT_THE_FUNCTION = ("dropout", "permute", "cross_entropy", "z_loss", "load_balance", "mse")


class NotOfTheFamily(Exception):
    """The program has the family's operations, but not its numbers."""


class Facts:
    """The operations of a program in order, each loop once."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._found: list[tuple[Op, bool]] = []
        self._loops: list[Repeat] = []
        self._words: list[str] = []
        for item in _walk(program.forward.statements):
            if isinstance(item, Op):
                self._found.append((item, self._depth() > 0))
                word = _word(item)
                if word:
                    self._words.append(word)
            else:
                self._words.append("(" if item is not None else ")")
                if item is not None:
                    self._loops.append(item)

    def _depth(self) -> int:
        return self._words.count("(") - self._words.count(")")

    def signature(self) -> str:
        """The operations that make the function, as words; loops in parentheses.

        `linear+b` has a bias, `linear=tied` another layer's weight; attention names its masks;
        activations are `act`. Dropout, losses and their scales are left out.
        """
        return " ".join(self._words)

    def expect(self, condition: bool) -> None:
        if not condition:
            raise NotOfTheFamily

    def ops(self, kind: str) -> list[Op]:
        return [op for op, _ in self._found if op.kind == kind]

    def activations(self) -> list[Op]:
        return [op for op, _ in self._found if op.kind in ACTIVATIONS]

    def same(self, kind: str, attr: str) -> Attr:
        """The value that all operations of a kind agree on."""
        values = [op.attrs[attr] for op in self.ops(kind)]
        self.expect(bool(values) and all(value == values[0] for value in values))
        return values[0]

    def extent(self, axis: str) -> int:
        return extent(self._program, axis)

    def axis_of(self, kind: str, attr: str, at: int = 0) -> int:
        """Number of elements of the axis that an operation names."""
        axis = self.ops(kind)[at].attrs[attr]
        assert isinstance(axis, str), "an axis is named"
        return self.extent(axis)

    def width(self, norm: str) -> int:
        """Number of elements every norm runs over."""
        axis = self.same(norm, "over")
        assert isinstance(axis, str), "an axis is named"
        return self.extent(axis)

    def created(self, kind: str, at: int) -> int:
        """Number of output features of the `at`-th operation of a kind."""
        use = self.ops(kind)[at].weight("weight")
        assert use is not None, "it has a weight"
        return math.prod(self.extent(axis) for axis in use.weight.out_axes)

    def contracted(self, kind: str, at: int) -> tuple[str, str, str]:
        """The three axes that the `at`-th operation of a kind sums over."""
        use = self.ops(kind)[at].weight("weight")
        axes = use.weight.in_axes if use is not None else ()
        self.expect(len(axes) == 3)
        return axes[0], axes[1], axes[2]

    def image(self, channels: str, high: str, wide: str) -> tuple[int, int]:
        """Height and width of the picture that is cut into such patches."""
        (cut,) = self.ops("rearrange")
        axes = [a for a in cut.inputs[0].type.axes if a != channels]
        sides = [
            [self.extent(a) for a in axes if patch in self._program.axes[a].factors]
            for patch in (high, wide)
        ]
        self.expect(all(len(side) == 1 for side in sides))
        return sides[0][0], sides[1][0]

    def loop(self, at: int) -> int:
        """Number of iterations of the `at`-th loop."""
        return self._loops[at].count

    def dropout(self, *, inside: bool | None = None) -> float:
        """The one rate of all dropouts (inside loops, outside, or all); 0 where there are none."""
        rates = [
            op.attrs["p"]
            for op, in_loop in self._found
            if op.kind == "dropout" and inside in (None, in_loop)
        ]
        self.expect(all(rate == rates[0] for rate in rates))
        rate = rates[0] if rates else 0.0
        assert isinstance(rate, float | int), "a rate is a number"
        return float(rate)

    def loss_scale(self, kind: str) -> float | None:
        """What the one loss of a kind is multiplied by, summed over the loop's iterations."""
        losses = self.ops(kind)
        if len(losses) != 1:
            return None
        for op in self.ops("scale"):
            if op.inputs[0] is losses[0].result:
                by = op.attrs["by"]
                assert isinstance(by, float | int), "a scale is a number"
                return float(by) * self._loops[0].count
        return None


def _walk(statements: list[Statement]) -> Iterator[Op | Repeat | None]:
    """Operations in order; a loop is announced and closed with None."""
    for statement in statements:
        if isinstance(statement, Op):
            yield statement
        elif isinstance(statement, Call):
            yield from _walk(statement.function.statements)
        elif isinstance(statement, Repeat):
            yield statement
            for body in statement.bodies:
                yield from _walk(body.statements)
            yield None


def _word(op: Op) -> str:
    """An operation in a signature, "" where it is not part of the function."""
    if op.kind in _NOT_THE_FUNCTION or (op.kind == "scale" and not op.result.type.axes):
        return ""
    if op.kind in ACTIVATIONS:
        return "act"
    if op.kind == "sdpa":
        extras = op.attrs["extras"]
        assert isinstance(extras, tuple), "extras are names"
        scale = op.attrs["scale"]
        words = ["causal"] if op.attrs["causal"] else []
        words += [str(extra) for extra in extras]
        words += [f"scale={scale:g}"] if isinstance(scale, int | float) else []
        return ":".join(["sdpa", *words])
    use = op.weight("weight")
    tied = "=tied" if use is not None and use.tied else ""
    bias = "+b" if op.weight("bias") is not None else ""
    return op.kind + tied + bias
