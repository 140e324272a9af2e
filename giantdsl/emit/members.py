"""The attributes of an emitted class: constructors, and initial values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from giantdsl.emit.held import Held
from giantdsl.ir.nodes import Call, Function, Hold, Op, Program, Repeat, Statement, Weight
from giantdsl.ir.parameters import extent, stored_axes

Index = tuple[int, ...]
_INDEX_NAMES = "ijklmnop"


@dataclass(slots=True)
class Member:
    """An attribute. `counts` are where the loops around it end, `makers` its constructor by index.

    `weights` are its own parameters, empty for a block. `holds` are those of layers on other
    stages, where it is nothing but their place.
    """

    counts: Index
    makers: dict[Index, str] = field(default_factory=dict)
    weights: tuple[Weight, ...] = ()
    holds: tuple[Hold, ...] = ()


def member_names(statements: Sequence[Statement]) -> list[str]:
    """Attributes that statements use as their own, loops entered."""
    found: dict[str, None] = {}
    for statement in statements:
        if isinstance(statement, Op):
            found.update((use.weight.member, None) for use in statement.weights if not use.tied)
        elif isinstance(statement, Call):
            found[statement.member] = None
        elif isinstance(statement, Repeat):
            for body in statement.bodies:
                found.update(dict.fromkeys(member_names(body.statements)))
    return list(found)


def collect_members(
    program: Program, function: Function, construct: Callable[[Call], str], held: Held
) -> dict[str, Member]:
    """A function's attributes in order of use. `construct` makes a block of a call."""
    found: dict[str, Member] = {}

    def visit(statements: Sequence[Statement], counts: Index, at: Index) -> None:
        for statement in statements:
            if isinstance(statement, Op):
                own = tuple(use.weight for use in statement.weights if not use.tied)
                if own:
                    member = found.setdefault(own[0].member, Member(counts))
                    member.makers[at] = _layer(program, statement, own, held)
                    member.weights = own
            elif isinstance(statement, Call):
                member = found.setdefault(statement.member, Member(counts))
                member.makers[at] = construct(statement)
            elif isinstance(statement, Repeat):
                visit_loop(statement, counts, at)

    def visit_loop(loop: Repeat, counts: Index, at: Index) -> None:
        if loop.shared:
            visit(loop.bodies[0].statements, counts, at)
            return
        for i, variant in zip(loop.indices, loop.pattern, strict=True):
            visit(loop.bodies[variant].statements, (*counts, loop.indices.stop), (*at, i))

    for name, holds in _holds_by_member(function).items():
        found[name] = Member((), {(): _holder(program, holds, 0, held)}, holds=tuple(holds))
    visit(function.statements, (), ())
    return found


def _holds_by_member(function: Function) -> dict[str, list[Hold]]:
    found: dict[str, list[Hold]] = {}
    for hold in function.holds:
        found.setdefault((*hold.path, hold.weight.member)[0], []).append(hold)
    return found


def _holder(program: Program, holds: Sequence[Hold], depth: int, held: Held) -> str:
    """What keeps weights of layers on other stages under their names: dictionaries in dictionaries."""
    inner: dict[str, list[Hold]] = {}
    for hold in holds:
        steps = (*hold.path, hold.weight.member, *([hold.weight.leaf] if hold.weight.leaf else []))
        if len(steps) == depth + 1:
            return f"nn.Parameter(torch.empty({shape_text(program, hold.weight, held)}))"
        inner.setdefault(steps[depth + 1], []).append(hold)
    items = {name: _holder(program, under, depth + 1, held) for name, under in inner.items()}
    parameters = next(iter(items.values())).startswith("nn.Parameter(")
    kind = "nn.ParameterDict" if parameters else "nn.ModuleDict"
    return f"{kind}({{{', '.join(f'{chr(34)}{n}{chr(34)}: {item}' for n, item in items.items())}}})"


def _layer(program: Program, op: Op, own: tuple[Weight, ...], held: Held) -> str:
    """The constructor of a layer with weights."""
    weight = own[0]
    if op.kind == "param":
        return f"nn.Parameter(torch.empty({shape_text(program, weight, held)}))"
    bias = any(w.leaf == "bias" for w in own)
    main = op.weight("weight")
    if main is None or main.tied:
        shape = shape_text(program, weight, held)
        return f'nn.ParameterDict({{"bias": nn.Parameter(torch.empty({shape}))}})'
    out, into = (held.product(program, weight, a) for a in (weight.out_axes, weight.in_axes))
    if op.kind == "linear":
        if weight.per:
            per = held.product(program, weight, weight.per)
            return f"ExpertLinear({per}, {out}, {into}, bias={bias})"
        return f"{held.linear}({into}, {out}{'' if bias else ', bias=False'})"
    if op.kind in ("embedding", "relative_bias"):
        return f"nn.Embedding({into}, {out})"
    if weight.per:
        per = held.product(program, weight, weight.per)
        return f'ExpertNorm({per}, {out}, "{op.kind}", {op.attrs["eps"]!r}, bias={bias})'
    if op.kind == "layernorm":
        return f"nn.LayerNorm({out}, eps={op.attrs['eps']!r}{'' if bias else ', bias=False'})"
    return f"nn.RMSNorm({out}, eps={op.attrs['eps']!r})"


def shape_text(program: Program, weight: Weight, held: Held) -> str:
    """The sizes of a weight as this rank holds it, as the plain module orders them."""
    return ", ".join(held.product(program, weight, axes) for axes in stored_axes(weight))


def constructor(member: Member) -> str:
    """The expression that makes the attribute, loops as lists of modules."""
    return _made(member.counts, member.makers)


def _made(counts: Index, makers: dict[Index, str]) -> str:
    if not counts:
        return makers[()]
    inner: list[str | None] = []
    for i in range(counts[0]):
        mine = {at[1:]: maker for at, maker in makers.items() if at[0] == i}
        inner.append(_made(counts[1:], mine) if mine else None)
    present = [item for item in inner if item is not None]
    if len(present) < len(inner):
        return _dictionary(inner)
    if len(set(present)) == 1:
        return f"{_list_kind(present[0])}({present[0]} for _ in range({counts[0]}))"
    return _varied(present)


def _list_kind(maker: str) -> str:
    return "nn.ParameterList" if maker.startswith("nn.Parameter(") else "nn.ModuleList"


def _dictionary(items: Sequence[str | None]) -> str:
    """Some iterations only: a dictionary keeps the names `0`, `3`, …."""
    made = {i: item for i, item in enumerate(items) if item is not None}
    first = next(iter(made.values()))
    kind = "nn.ParameterDict" if first.startswith("nn.Parameter(") else "nn.ModuleDict"
    run = range(min(made), max(made) + 1)
    if len(run) == len(made) > 1:
        rule = _rule(made)
        if rule is not None:
            return f"{kind}({{str(i): {rule} for i in range({run.start}, {run.stop})}})"
    if len(set(made.values())) == 1 and len(made) > 2:
        return f"{kind}({{str(i): {first} for i in {tuple(made)}}})"
    return f"{kind}({{{', '.join(f'{chr(34)}{i}{chr(34)}: {item}' for i, item in made.items())}}})"


def _varied(items: Sequence[str]) -> str:
    """A list whose items differ: by a rule of the index if there is one."""
    kind = _list_kind(items[0])
    rule = _rule(dict(enumerate(items)))
    if rule is not None:
        return f"{kind}({rule} for i in range({len(items)}))"
    return f"{kind}([{', '.join(items)}])"


def _rule(items: Mapping[int, str]) -> str | None:
    """An expression of `i` for the items of neighbouring indices; None if there is no short one."""
    kinds = list(dict.fromkeys(items.values()))
    if len(kinds) == 1:
        return kinds[0]
    if len(kinds) > 2:
        return None
    for period in range(2, min(len(items), 9)):
        # The kind at 0 is named first where there is one, as the whole loop would name it.
        at_zero = next((item for i, item in items.items() if i % period == 0), kinds[0])
        for rare, common in sorted((kinds, kinds[::-1]), key=lambda pair: pair[0] != at_zero):
            where = [i for i, item in items.items() if item == rare]
            at = {i % period for i in where}
            regular = all((i % period in at) == (item == rare) for i, item in items.items())
            if len(at) == 1 < len(where) and regular:
                return f"{rare} if i % {period} == {at.pop()} else {common}"
    for rare, common in (kinds, kinds[::-1]):
        where = [i for i, item in items.items() if item == rare]
        if len(where) == 1:
            return f"{rare} if i == {where[0]} else {common}"
    return None


def init_lines(program: Program, members: dict[str, Member], is_top: bool, held: Held) -> list[str]:
    """The body of `init_weights`, lines without the indent of a method."""
    lines: list[str] = []
    for name, member in members.items():
        path, logical, indent = f"self.{name}", name if is_top else f"{{name}}.{name}", ""
        for depth, _ in enumerate(member.counts):
            index, layer = _INDEX_NAMES[depth], "layer" + "_" * depth
            items = f"{path}.items()" if _is_sparse(member, depth) else f"enumerate({path})"
            lines.append(f"{indent}for {index}, {layer} in {items}:")
            path, logical, indent = layer, f"{logical}.{{{index}}}", indent + "    "
        for hold in member.holds:
            inner = ".".join((*hold.path, hold.weight.member))
            lines.append(_init(program, hold.weight, f"self.{inner}", inner, held))
        if not member.weights and not member.holds:
            lines.append(f"{indent}{path}.init_weights(seed, {_text(logical)})")
        for weight in member.weights:
            lines.append(indent + _init(program, weight, path, logical, held))
    return lines


def _is_sparse(member: Member, depth: int) -> bool:
    at = {index[: depth + 1] for index in member.makers}
    outer = {index[:depth] for index in member.makers}
    return len(at) < len(outer) * member.counts[depth]


def _text(name: str) -> str:
    return f'f"{name}"' if "{" in name else f'"{name}"'


def _init(program: Program, weight: Weight, path: str, logical: str, held: Held) -> str:
    """Fans are those of the whole tensor, whatever part of it a rank has."""
    init = weight.init
    target = f"{path}.{weight.leaf}" if weight.leaf else path
    name = _text(f"{logical}.{weight.leaf}" if weight.leaf else logical)
    fan_out, fan_in = (_product(program, axes) for axes in (weight.out_axes, weight.in_axes))
    if init.kind == "constant":
        plain = {0.0: "zeros_", 1.0: "ones_"}.get(init.value)
        if plain is not None:
            return f"nn.init.{plain}({target})"
        return f"nn.init.constant_({target}, {init.value!r})"
    where = held.place(program, weight)
    if init.kind == "normal":
        return f"normal_({target}, seed, {name}, {init.value!r}{where})"
    if init.kind == "kaiming":
        return f"normal_({target}, seed, {name}, {math.sqrt(2 / fan_in)!r}{where})"
    bound = init.value if init.kind == "uniform" else math.sqrt(6 / (fan_in + fan_out))
    return f"uniform_({target}, seed, {name}, {bound!r}{where})"


def _product(program: Program, axes: Sequence[str]) -> int:
    return math.prod(extent(program, axis) for axis in axes)
