"""From the tree of a file to its program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from giantdsl.diagnostics import Diagnostic, Label, Sink
from giantdsl.ir.nodes import Call, Function, Op, Program, Repeat, Statement, Value
from giantdsl.ir.types import TensorType
from giantdsl.sema.axes import resolve_axes, resolve_dtype
from giantdsl.sema.binding import Bound, make_extern
from giantdsl.sema.blocks import declared_results, finish_function, instantiate
from giantdsl.sema.dims import Dims, build_dims
from giantdsl.sema.elaborate import Elaborator
from giantdsl.sema.finish import reachable_functions
from giantdsl.sema.libraries import Loader, build_library
from giantdsl.sema.losses import check_forward_counts
from giantdsl.sema.scalars import Failed
from giantdsl.sema.scope import Frame, Library, Tables
from giantdsl.syntax import ast

MAX_WEIGHTS = 200_000


def dims_of(file: ast.File, overrides: Mapping[str, ast.Expr], sink: Sink) -> Dims:
    """All `dims` of a file, overridden."""
    decls = [d for item in file.items if isinstance(item, ast.Dims) for d in item.decls]
    return build_dims(decls, overrides, sink)


def analyze(file: ast.File, dims: Dims, load: Loader, sink: Sink) -> Program | None:
    """The program of a model file, or None where it cannot be told what was meant.

    Every fault goes to `sink`; a program that comes with errors must not be used.
    """
    library = build_library(file, load, sink)
    model, forward = _model(file, sink), _forward(file, sink)
    if forward is None or model is None:
        return None
    tables = Tables(dims, sink)
    elaborator = Elaborator(tables)
    frame = Frame(name=model.name.text, library=library)
    inputs = _inputs(tables, frame, forward)
    returned = elaborator.run_body(frame, forward.body)
    results = declared_results(elaborator, frame, forward.results, returned, forward, "`forward`")
    check_forward_counts(tables, frame, inputs)
    counts = {name: count for name, (count, _) in frame.loss_counts.items() if count is not None}
    function = finish_function(elaborator, frame, inputs, results, {}, forward.span)
    _check_unused_blocks(elaborator, library)
    functions = reachable_functions(function)
    _check_size(functions, sink)
    _name_classes(functions)
    return Program(
        model=model.name.text,
        axes=dims.axes,
        scalars=dims.scalars,
        functions=functions,
        counts=counts,
        externs={name: make_extern(x) for name, x in _externs(library).items()},
        span=file.span,
    )


def _model(file: ast.File, sink: Sink) -> ast.Model | None:
    models = [item for item in file.items if isinstance(item, ast.Model)]
    for extra in models[1:]:
        sink.add(
            Diagnostic(
                "G104",
                "a file holds one model",
                Label(extra.span, "a second `model` line"),
                "move it to a file of its own",
                (Label(models[0].span, "the first"),),
            )
        )
    if not models:
        start = file.source.span(0, min(1, len(file.source.text)))
        sink.add(
            Diagnostic(
                "G108",
                "this file holds no model",
                Label(start, "no `model NAME` line"),
                "start a model with `model NAME`; a file without is a library or a plan",
            )
        )
    return models[0] if models else None


def _forward(file: ast.File, sink: Sink) -> ast.Forward | None:
    forwards = [item for item in file.items if isinstance(item, ast.Forward)]
    for extra in forwards[1:]:
        sink.add(
            Diagnostic(
                "G104",
                "`forward` is defined twice",
                Label(extra.span, "again here"),
                "a model has one forward pass",
                (Label(forwards[0].span, "first here"),),
            )
        )
    models = [item for item in file.items if isinstance(item, ast.Model)]
    if not forwards and models:
        sink.add(
            Diagnostic(
                "G108",
                f"model `{models[0].name.text}` has no `forward`",
                Label(models[0].span, "nothing says what it computes"),
                "add `forward(tokens[b, s]: vocab) -> [b, s, d] { … }`",
            )
        )
    return forwards[0] if forwards else None


def _inputs(tables: Tables, frame: Frame, forward: ast.Forward) -> tuple[Value, ...]:
    found: list[Value] = []
    for param in forward.params:
        name = param.name.text
        if param.axes is None or param.default is not None:
            tables.sink.add(
                Diagnostic(
                    "G232",
                    f"`{name}` of `forward` is a tensor",
                    Label(param.span, "no axes" if param.axes is None else "a default"),
                    f"write its axes: `{name}[b, s]`; numbers go into `dims`",
                )
            )
            continue
        axes = resolve_axes(tables, frame, param.axes)
        dtype = resolve_dtype(tables, frame, param.dtype)
        value = Value(name, TensorType(axes[0] if axes else (), dtype or "int"), param.span)
        if axes is None or dtype is None:
            tables.poisoned.add(id(value))
        if name in frame.env:
            tables.sink.add(
                Diagnostic(
                    "G104",
                    f"`{name}` is given twice",
                    Label(param.name.span, "again here"),
                    "inputs have different names",
                )
            )
            continue
        tables.keep_alive.append(value)
        frame.env[name] = value
        found.append(value)
    return tuple(found)


def _check_size(functions: Sequence[Function], sink: Sink) -> None:
    """Loops in loops multiply: the names of all weights must still fit into memory."""
    counts: dict[int, int] = {}
    for function in functions:
        each = [_num_weights(s, counts) for s in function.statements]
        counts[id(function)] = total = sum(each)
        if function is functions[-1] and total > MAX_WEIGHTS:
            largest = function.statements[each.index(max(each))]
            sink.add(
                Diagnostic(
                    "G215",
                    f"{total:,} weights are too many",
                    Label(largest.span, "most of them are here"),
                    f"a model has at most {MAX_WEIGHTS:,} weight tensors; repeat less often",
                )
            )


def _num_weights(statement: Statement, counts: Mapping[int, int]) -> int:
    """How many weight tensors a statement owns, loops expanded."""
    if isinstance(statement, Op):
        return sum(not use.tied for use in statement.weights)
    if isinstance(statement, Call):
        return counts[id(statement.function)]
    if isinstance(statement, Repeat):
        each = [sum(_num_weights(s, counts) for s in body.statements) for body in statement.bodies]
        runs = statement.pattern[:1] if statement.shared else statement.pattern
        return sum(each[variant] for variant in runs)
    return 0


def _check_unused_blocks(elaborator: Elaborator, library: Library) -> None:
    """Read the file's own blocks that nothing uses, where their parameters say enough."""
    tables = elaborator.tables
    for ref in library.blocks.values():
        block = ref.block
        if id(block) in elaborator.seen_blocks or ref.library is not library or block.generics:
            continue
        frame = Frame(name=block.name.text, library=library, depth=1)
        bound = Bound()
        for param in block.params:
            if param.axes is None:
                if param.default is None:
                    break
                value = elaborator.expr(frame, param.default)
                if isinstance(value, Failed):
                    break
                bound.env[param.name.text] = value
                continue
            if any(isinstance(a, ast.RestAxes) for a in param.axes.axes):
                break
            axes = resolve_axes(tables, frame, param.axes)
            dtype = resolve_dtype(tables, frame, param.dtype)
            if axes is None or dtype is None:
                break
            made = Value(param.name.text, TensorType(axes[0], dtype), param.span)
            tables.keep_alive.append(made)
            bound.env[param.name.text] = made
        else:
            instantiate(elaborator, frame, ref, bound, block.name.text, block.span)


def _externs(library: Library) -> dict[str, ast.Extern]:
    """The externs of this file and of the files its blocks come from."""
    found = dict(library.externs)
    for ref in library.blocks.values():
        if ref.library is not library:
            found = {**_externs(ref.library), **found}
    return found


def _name_classes(functions: list[Function]) -> None:
    """Symbols: the block's name in CamelCase, numbered where a block is used in several ways."""
    taken: set[str] = set()
    numbers: dict[str, int] = {}
    for function in functions:
        base = "".join(part[:1].upper() + part[1:] for part in function.name.split("_") if part)
        base = symbol = base or "Block"
        while symbol in taken:
            numbers[base] = numbers.get(base, 1) + 1
            symbol = f"{base}{numbers[base]}"
        taken.add(symbol)
        function.symbol = symbol
