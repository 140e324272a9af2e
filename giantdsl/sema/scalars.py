"""Compile-time expressions: what can be computed without a tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping

from giantdsl.attrs import Attr, Config, format_attr
from giantdsl.diagnostics import Diagnostic, Label, Sink, did_you_mean
from giantdsl.source import Span
from giantdsl.syntax import ast


class Failed:
    """The value of an expression that was reported as wrong; nothing follows from it."""

    def __repr__(self) -> str:
        return "FAILED"


FAILED = Failed()

_MAX_POWER = 1024
_MAX_MAGNITUDE = 1e300
FUNCTIONS = ("sqrt", "log", "exp", "min", "max", "pad")


def evaluate(
    expr: ast.Expr, names: Mapping[str, Attr], sink: Sink, words: bool = False
) -> Attr | Failed:
    """The value of a compile-time expression, or FAILED after reporting why there is none.

    `names` are the values that may be named. With `words`, other names and calls are values
    themselves, as settings want them: `cosine(peak=3e-4)` becomes a Config.
    """
    if isinstance(expr, ast.Number | ast.String | ast.Bool):
        return expr.value
    if isinstance(expr, ast.NoneLiteral):
        return None
    if isinstance(expr, ast.Word):
        return Config(expr.text)
    if isinstance(expr, ast.ListExpr):
        items = [evaluate(item, names, sink, words) for item in expr.items]
        good = tuple(item for item in items if not isinstance(item, Failed))
        return good if len(good) == len(items) else FAILED
    if isinstance(expr, ast.Path):
        return _name(expr, names, sink, words)
    if isinstance(expr, ast.Call):
        return _call(expr, names, sink, words)
    if isinstance(expr, ast.Ternary):
        condition = evaluate(expr.condition, names, sink, words)
        if isinstance(condition, Failed):
            return FAILED
        return evaluate(expr.then if condition else expr.otherwise, names, sink, words)
    if isinstance(expr, ast.Unary):
        return apply_unary(expr.op, evaluate(expr.operand, names, sink, words), expr.span, sink)
    if isinstance(expr, ast.Binary):
        # Only what is compared or chosen can be a word; what is added or multiplied has a value.
        words = words and expr.op in ("and", "or", "==", "!=")
        left = evaluate(expr.left, names, sink, words)
        right = evaluate(expr.right, names, sink, words)
        return apply_binary(expr.op, left, right, expr.span, sink)
    sink.add(not_compile_time(expr.span))
    return FAILED


def _name(expr: ast.Path, names: Mapping[str, Attr], sink: Sink, words: bool) -> Attr | Failed:
    if expr.text in names:
        return names[expr.text]
    if words:
        return Config(expr.text)
    sink.add(unknown_value(expr.text, names, expr.span))
    return FAILED


def _call(expr: ast.Call, names: Mapping[str, Attr], sink: Sink, words: bool) -> Attr | Failed:
    args: list[Attr] = []
    kwargs: dict[str, Attr] = {}
    failed = False
    for arg in expr.args:
        value = evaluate(arg.value, names, sink, words)
        if isinstance(value, Failed):
            failed = True
        elif arg.name is None:
            args.append(value)
        elif arg.name.text in kwargs:
            sink.add(
                Diagnostic(
                    "G207", f"`{arg.name.text}` is given twice", Label(arg.span, "again here")
                )
            )
            failed = True
        else:
            kwargs[arg.name.text] = value
    if failed:
        return FAILED
    name = expr.function.text
    if name in FUNCTIONS and (not words or not kwargs):
        return call_function(name, args, kwargs, expr.span, sink)
    if words:
        return Config(name, tuple(args), tuple(kwargs.items()))
    sink.add(
        Diagnostic(
            "G103",
            f"no function `{name}`",
            Label(expr.function.span, "not defined"),
            did_you_mean(name, FUNCTIONS, f"sizes are made of numbers and {', '.join(FUNCTIONS)}"),
        )
    )
    return FAILED


def call_function(
    name: str, args: list[Attr], kwargs: Mapping[str, Attr], span: Span, sink: Sink
) -> Attr | Failed:
    """`sqrt log exp min max pad` of numbers."""
    wanted = {"sqrt": 1, "log": 1, "exp": 1, "pad": 2}.get(name)
    numbers = [a for a in args if isinstance(a, int | float) and not isinstance(a, bool)]
    if kwargs or len(numbers) != len(args) or not args or (wanted and len(args) != wanted):
        takes = f"{wanted} number{'s' if wanted != 1 else ''}" if wanted else "numbers"
        sink.add(Diagnostic("G207", f"`{name}` takes {takes}", Label(span, "not like this")))
        return FAILED
    try:
        return _compute(name, numbers)
    except (ValueError, OverflowError, ZeroDivisionError):
        sink.add(Diagnostic("G203", f"`{span.text}` has no value", Label(span, "out of range")))
        return FAILED


def _compute(name: str, numbers: list[int | float]) -> int | float:
    if name == "sqrt":
        return math.sqrt(numbers[0])
    if name == "log":
        return math.log(numbers[0])
    if name == "exp":
        return math.exp(numbers[0])
    if name == "pad":
        size, step = int(numbers[0]), int(numbers[1])
        if size != numbers[0] or step != numbers[1] or step < 1:
            raise ValueError
        return -(-size // step) * step
    return min(numbers) if name == "min" else max(numbers)


def apply_unary(op: str, value: Attr | Failed, span: Span, sink: Sink) -> Attr | Failed:
    """`-x` and `not x` of a compile-time value."""
    if isinstance(value, Failed):
        return FAILED
    if op == "not":
        return not value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return -value
    sink.add(
        Diagnostic(
            "G203", f"`-` is not defined for {format_attr(value)}", Label(span, "not a number")
        )
    )
    return FAILED


def apply_binary(
    op: str, left: Attr | Failed, right: Attr | Failed, span: Span, sink: Sink
) -> Attr | Failed:
    """Arithmetic, comparison and logic of compile-time values."""
    if isinstance(left, Failed) or isinstance(right, Failed):
        return FAILED
    if op in ("and", "or"):
        return (left and right) if op == "and" else (left or right)
    if op in ("==", "!="):
        return (left == right) is (op == "==")
    if not _is_number(left) or not _is_number(right):
        what = f"{format_attr(left)} and {format_attr(right)}"
        sink.add(
            Diagnostic(
                "G203", f"`{op}` is not defined for {what}", Label(span, "needs two numbers")
            )
        )
        return FAILED
    assert isinstance(left, int | float) and isinstance(right, int | float)
    try:
        result = _arithmetic(op, left, right)
    except (ZeroDivisionError, OverflowError, ValueError) as error:
        why = "division by zero" if isinstance(error, ZeroDivisionError) else "out of range"
        sink.add(Diagnostic("G203", f"`{span.text}` has no value", Label(span, why)))
        return FAILED
    return result


def _is_number(value: Attr) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _arithmetic(op: str, a: int | float, b: int | float) -> Attr:
    if op in ("<", "<=", ">", ">="):
        return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op]
    if op == "**":
        if abs(b) > _MAX_POWER or (isinstance(a, int) and abs(a) > 1 and abs(b) > 300):
            raise OverflowError
        power = a**b
        if isinstance(power, complex):
            raise ValueError
        result: int | float = power
    elif op == "/":
        quotient = a / b
        whole = isinstance(a, int) and isinstance(b, int) and a % b == 0
        result = a // b if whole else quotient
    else:
        result = {
            "+": lambda: a + b,
            "-": lambda: a - b,
            "*": lambda: a * b,
            "//": lambda: a // b,
            "%": lambda: a % b,
        }[op]()
    if (isinstance(result, float) and not math.isfinite(result)) or abs(result) > _MAX_MAGNITUDE:
        raise OverflowError
    return result


def unknown_value(name: str, known: Mapping[str, object], span: Span) -> Diagnostic:
    return Diagnostic(
        "G102",
        f"no value `{name}`",
        Label(span, "not defined"),
        did_you_mean(name, known, "sizes and numbers are declared in `dims`"),
    )


def not_compile_time(span: Span) -> Diagnostic:
    return Diagnostic(
        "G213",
        "this must be known before the model runs",
        Label(span, "depends on tensor data"),
        "use sizes from `dims`, numbers, and the index of a `repeat`",
    )
