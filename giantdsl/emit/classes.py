"""Functions as classes: one for each block, as far as its uses can share one.

Uses of a block that differ in sizes of sequences only give the same text and share a class. Uses
that differ in a compile-time argument share one that takes it in its constructor. Optional
tensors that some uses lack become `= None`. What still differs gets a class of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from giantdsl.attrs import Attr, Config
from giantdsl.emit.forward import Callee, ForwardWriter
from giantdsl.emit.guards import Guards
from giantdsl.emit.held import Held
from giantdsl.emit.members import Member, collect_members, constructor, init_lines
from giantdsl.emit.names import class_name, variable_name
from giantdsl.emit.scope import Scope
from giantdsl.emit.wrap import wrap
from giantdsl.ir.nodes import Call, Function, Program, Repeat, Statement
from giantdsl.ir.types import CACHE
from giantdsl.source import Span

_AXES = re.compile(r"\baxes\b")
_EXTRAS = ("mask", "bias", "keep", "document")


@dataclass(frozen=True, slots=True)
class Sharing:
    """What a class leaves open: constructor arguments, and tensors that may be absent."""

    arguments: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


@dataclass(slots=True)
class ClassText:
    """A class without its name: lines after `class X(nn.Module):` and the spec place of each."""

    lines: list[str]
    spans: list[Span]
    used: frozenset[str] = frozenset()
    needs_axes: bool = False

    @property
    def bare(self) -> str:
        """The text without comments and places, to compare."""
        return re.sub(r"  # .*$", "", "\n".join(self.lines[1:]), flags=re.M)


@dataclass(slots=True)
class ClassWriter:
    """Writes all classes of a program, callees first."""

    program: Program
    reserved: frozenset[str]
    recompute: frozenset[str]
    source_name: str
    held: Held = field(default_factory=Held)
    is_stage: bool = False
    names: dict[int, str] = field(default_factory=dict)
    sharings: dict[int, Sharing] = field(default_factory=dict)
    callees: dict[int, Callee] = field(default_factory=dict)
    texts: list[tuple[str, ClassText]] = field(default_factory=list)
    _with_axes: set[int] = field(default_factory=set)

    @property
    def lines(self) -> list[str]:
        """Of all classes, without the lines that name them."""
        return [line for _, text in self.texts for line in text.lines]

    @property
    def renamed(self) -> dict[str, str]:
        """The parameters of the model's `forward` that are not called as the spec calls them."""
        names = {p.name: variable_name(p.name, self.reserved) for p in self.program.forward.params}
        return {own: name for own, name in names.items() if own != name}

    def run(self) -> None:
        for group in _groups(self.program):
            self._group(group)

    def _group(self, group: Sequence[Function]) -> None:
        for sharing in (Sharing(), *_possible_sharings(group)):
            texts = [self._text(function, sharing) for function in group]
            if len({text.bare for text in texts}) == 1:
                best = max(range(len(group)), key=lambda i: len(set(group[i].generics.values())))
                self._add(group, group[0].symbol, texts[best], sharing)
                return
        by_text: dict[str, list[Function]] = {}
        plain = [self._text(function, Sharing()) for function in group]
        for function, text in zip(group, plain, strict=True):
            by_text.setdefault(text.bare, []).append(function)
        for bare, functions in by_text.items():
            text = next(t for t in plain if t.bare == bare)
            self._add(functions, functions[0].symbol, text, Sharing())

    def _add(
        self, functions: Sequence[Function], symbol: str, text: ClassText, sharing: Sharing
    ) -> None:
        name = class_name(symbol, self.reserved)
        self.texts.append((name, text))
        for function in functions:
            self.names[id(function)] = name
            if text.needs_axes:
                self._with_axes.add(id(function))
            self.sharings[id(function)] = sharing
            optional = frozenset(
                i for i, p in enumerate(function.params) if p.name in sharing.optional
            )
            self.callees[id(function)] = Callee(optional, function.name in self.recompute)

    # ---- one class ------------------------------------------------------------------------

    def _text(self, function: Function, sharing: Sharing) -> ClassText:
        is_top = function is self.program.forward
        static = {key: function.static[key] for key in sharing.arguments}
        scope = Scope(self.program, function, self.reserved, static, self.held)
        scope.absent = frozenset(sharing.optional) - {p.name for p in function.params}
        signature = self._signature(function, scope, sharing, is_top)
        forward = self._forward(function, scope, is_top)
        members = collect_members(
            self.program,
            function,
            lambda call: self._construct(call, static, scope.used_static),
            self.held,
        )
        makers = {name: constructor(member) for name, member in members.items()}
        init = self._init_weights(function, is_top, members)
        keeps_axes = any("self.axes." in line for line in [*init, *forward])
        takes_axes = keeps_axes or any(_AXES.search(made) is not None for made in makers.values())
        takes_axes = takes_axes or (is_top and self.is_stage)
        lines = [f'    """{self._doc(function, is_top)}"""', ""]
        arguments = [f"{key}: {_type_of(key, self.program, function)}" for key in sharing.arguments]
        arguments = [*(["axes: Axes"] if takes_axes else []), *arguments]
        lines += wrap(f"    def __init__({', '.join(['self', *arguments])}) -> None:")
        lines.append("        super().__init__()")
        lines += ["        self.axes = axes"] if keeps_axes else []
        lines += [f"        self.{k} = {k}" for k in sharing.arguments if k in scope.used_static]
        for name, made in makers.items():
            lines += wrap(f"        self.{name} = {made}")
        if is_top:
            lines.append("        self.losses: dict[str, Tensor] = {}")
        lines += ["", *init, "", *signature]
        spans = [function.span] * len(lines)
        text = ClassText([*lines, *forward], [*spans, *scope.spans])
        text.needs_axes = takes_axes
        return text

    def _doc(self, function: Function, is_top: bool) -> str:
        place = f"{self.source_name}:{function.span.line}-{function.span.end_line}"
        if function.span.source is not self.program.span.source:
            file = function.span.source.name.replace("\\", "/").split("/")[-1]
            place = f"{file}:{function.span.line}-{function.span.end_line}"
        return f"The model, {place}." if is_top else f"Block {function.name}, {place}."

    def _construct(self, call: Call, static: dict[str, Attr], used: set[str]) -> str:
        """The constructor of a block; an argument of the same name and value is passed on."""
        sharing = self.sharings[id(call.function)]
        args = ["axes"] if id(call.function) in self._with_axes else []
        for key in sharing.arguments:
            value = call.function.static[key]
            passed = key in static and static[key] == value
            args.append(f"{key}={key}" if passed else f"{key}={_python(value)}")
        return f"{self.names[id(call.function)]}({', '.join(args)})"

    def _init_weights(
        self, function: Function, is_top: bool, members: dict[str, Member]
    ) -> list[str]:
        body = init_lines(self.program, members, is_top, self.held)
        if is_top:
            head = "    def init_weights(self, seed: int) -> None:"
            doc = '        """Initial values: a function of the seed, a parameter\'s name and the element."""'
            return [head, doc, *(line for text in body for line in wrap(" " * 8 + text))]
        head = "    def init_weights(self, seed: int, name: str) -> None:"
        return [head, *(line for text in body or ["pass"] for line in wrap(" " * 8 + text))]

    def _signature(
        self, function: Function, scope: Scope, sharing: Sharing, is_top: bool
    ) -> list[str]:
        params = ["self"]
        optional: list[str] = []
        for i, param in enumerate(function.params):
            is_none = i in function.loss_only
            name = scope.set_param(param, not is_none and param.name not in sharing.optional)
            if param.name in sharing.optional:
                continue
            if is_none and is_top:
                # Python wants parameters with a default last; `forward` is called by name.
                optional.append(f"{name}: Tensor | None = None")
            elif is_none:
                params.append(f"{name}: Tensor | None")
            else:
                kind = "Cache" if param.type.dtype == CACHE else "Tensor"
                params.append(f"{name}: {kind}")
        optional += [
            f"{variable_name(n, self.reserved)}: Tensor | None = None" for n in sharing.optional
        ]
        if function.draws and is_top:
            optional += ["*", "noise: Tensor | None = None"]
        elif function.draws:
            params.append("noise: Tensor | None")
        count = len(function.results) + (0 if is_top else len(function.losses))
        result = "Tensor" if count == 1 else f"tuple[{', '.join(['Tensor'] * count)}]"
        if is_top and self.is_stage:
            result = "tuple[Tensor, ...]"
        return wrap(f"    def forward({', '.join([*params, *optional])}) -> {result}:")

    def _forward(self, function: Function, scope: Scope, is_top: bool) -> list[str]:
        names = {i: scope.name_for(function.params[i].name) for i in function.loss_only}
        guards = Guards(function, names, is_top)
        if is_top and function.draws:
            _draw_noise(function, scope)
        guards.begin(scope)
        scope.keep(function.params)
        writer = ForwardWriter(scope, self.callees, guards)
        writer.run(function.statements)
        scope.at = function.span
        guards.end(scope)
        results = [scope.code(value) for value in function.results]
        results += guards.returned(scope)
        text = ", ".join(code.text for code in results)
        if is_top and self.is_stage:
            # Whatever comes out, the executor gets a tuple.
            text = f"({text},)" if len(results) == 1 else text or "()"
        scope.write(f"return {text}")
        return scope.lines


def _draw_noise(function: Function, scope: Scope) -> None:
    params = [p for i, p in enumerate(function.params) if i not in function.loss_only]
    first = next(p for p in (*params, *function.params) if p.type.axes)
    name = scope.name_for(first.name)
    scope.write("if not self.training:")
    scope.write("    noise = None")
    scope.write("elif noise is None:")
    scope.write(f"    noise = torch.randint(2**63 - 1, ({name}.size(0),), device={name}.device)")


def _groups(program: Program) -> list[list[Function]]:
    """Functions of the same block together, blocks that are used before those that use them."""
    by_block: dict[tuple[str, int, str], list[Function]] = {}
    keys: dict[int, tuple[str, int, str]] = {}
    for function in program.functions:
        place = (function.span.source.name, function.span.start, function.name)
        keys[id(function)] = place
        by_block.setdefault(place, []).append(function)
    order: dict[tuple[str, int, str], None] = {}

    def visit(place: tuple[str, int, str]) -> None:
        if place in order:
            return
        for function in by_block[place]:
            for callee in _callees(function.statements):
                visit(keys[id(callee)])
        order[place] = None

    for place in by_block:
        visit(place)
    return [by_block[place] for place in order]


def _callees(statements: Sequence[Statement]) -> list[Function]:
    found: list[Function] = []
    for statement in statements:
        if isinstance(statement, Call):
            found.append(statement.function)
        elif isinstance(statement, Repeat):
            for body in statement.bodies:
                found += _callees(body.statements)
    return found


def _possible_sharings(group: Sequence[Function]) -> list[Sharing]:
    """What a class for all of these uses would leave open; [] if nothing can be."""
    if len(group) < 2:
        return []
    keys = [key for key in group[0].static if all(key in f.static for f in group)]
    differing = [k for k in keys if len({repr(f.static[k]) for f in group}) > 1]
    arguments = tuple(k for k in differing if not _has_config(group, k))
    names = dict.fromkeys(p.name for f in group for p in f.params)
    optional = tuple(
        n for n in names if n in _EXTRAS and any(n not in {p.name for p in f.params} for f in group)
    )
    return [Sharing(arguments, optional)] if arguments or optional else []


def _has_config(group: Sequence[Function], key: str) -> bool:
    return any(isinstance(f.static[key], Config | tuple) for f in group)


def _python(value: Attr) -> str:
    return repr(value)


def _type_of(key: str, program: Program, function: Function) -> str:
    """The type of a constructor argument, from the values it has in all uses of the block."""
    values = [
        f.static[key] for f in program.functions if f.name == function.name and key in f.static
    ]
    kinds = dict.fromkeys(type(v).__name__ for v in values if v is not None)
    return " | ".join([*kinds, *(["None"] if None in values else [])]) or "None"
