"""Parser failures to diagnostics, by example.

Each case of `cases.py` has examples in `grammar/bad/`. They are parsed once, at the first error
of a process; the state each one fails in, and the kind of token it fails at, is what the case is
found by. So a message does not depend on how the grammar numbers its states.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from functools import lru_cache

from giantdsl.diagnostics import Diagnostic, Label, Sink
from giantdsl.errors import InternalError
from giantdsl.resources import folder
from giantdsl.source import SourceFile
from giantdsl.syntax import conditions
from giantdsl.syntax.brackets import balance
from giantdsl.syntax.build import Builder
from giantdsl.syntax.cases import ANY, CASES, Area, Case
from giantdsl.syntax.engine import Engine
from giantdsl.syntax.expected import in_words
from giantdsl.syntax.faults import Fault
from giantdsl.syntax.lexer import lex
from giantdsl.syntax.newlines import drop_newlines
from giantdsl.syntax.recovery import statement_end
from giantdsl.syntax.table import ParseTable
from giantdsl.syntax.tokens import END, KEYWORD_KINDS, NL, clipped

_MARK = "#: "
_AWAITED = frozenset({"NUMBER", "STRING", "LPAR"})
_ENDED = frozenset({"PLUS", "AND"})


def report(engine: Engine, at: int, faults: list[int], sink: Sink) -> None:
    """One diagnostic for the token `at`, unless its statement has been blamed already."""
    first = engine.checkpoints[-1].token
    known = bisect.bisect_left(faults, engine.token(first).start)
    if known < len(faults) and faults[known] <= engine.token(statement_end(engine, at)).end:
        return
    sink.add(explain(Fault(engine, at, first)))


def explain(fault: Fault) -> Diagnostic:
    """The diagnostic of the first case that applies, else what stands here and what could."""
    case = find_case(fault)
    if case is not None:
        return _diagnostic(case, fault)
    if fault.engine.start == "setting" and "EQUAL" not in _before(fault):
        return Diagnostic(
            "G016",
            "a setting is `name=value`",
            Label(
                fault.place(), "expected a name" if fault.at == 0 else "expected `=` and a value"
            ),
            "write `train.steps=20`",
        )
    words = in_words(fault.engine.accepted())
    return Diagnostic(
        "G000", f"{fault.shown()} cannot stand here", Label(fault.place(), f"expected {words}")
    )


def _before(fault: Fault) -> list[str]:
    return [token.kind for token in fault.engine.tokens[: fault.at]]


def find_case(fault: Fault) -> Case | None:
    """The first case whose example fails alike, or whose area this is, and whose `when` holds."""
    kinds = {fault.token.kind, "any"}
    if fault.token.kind in KEYWORD_KINDS:
        kinds.add("NAME")
    keyed = _keyed(fault.engine.table)
    named: set[str] = set()
    for place in _places(fault):
        row = keyed.get(place, {})
        named.update(*(row[kind] for kind in kinds & row.keys()))
    area = _area(fault)
    for case in CASES:
        if case.area is None:
            applies = case.name in named
        else:
            applies = case.area is area and _is_about(case, fault.token.kind, area)
        if applies and (case.when is None or case.when(fault)):
            return case
    return None


def _is_about(case: Case, kind: str, area: Area | None) -> bool:
    if case.kinds is None or kind in case.kinds or case.kinds is ANY:
        return True
    return area is Area.BEFORE and kind in KEYWORD_KINDS and "NAME" in case.kinds


def _area(fault: Fault) -> Area | None:
    accepted = set(fault.engine.accepted())
    if accepted >= _AWAITED:
        return Area.BEFORE
    return Area.AFTER if accepted >= _ENDED else None


def _diagnostic(case: Case, fault: Fault) -> Diagnostic:
    words = {
        "shown": fault.shown(),
        "token": clipped(fault.text(fault.token)),
        "previous": clipped(fault.text(fault.previous)),
        "next": clipped(fault.text(fault.next)),
        "head": clipped(fault.text(fault.head)),
        "near": _nearest(fault),
    }
    fix = case.fix(fault) if case.fix else None
    return Diagnostic(
        case.code,
        case.message.format(**words),
        Label(fault.head_place() if case.on_head else fault.place(), case.label.format(**words)),
        case.help.format(**words) if case.help else None,
        fixes=(fix,) if fix else (),
    )


def _nearest(fault: Fault) -> str:
    if fault.is_in_braces:
        return conditions.nearest_statement(fault)
    return conditions.nearest_section(fault)


# ---- the examples ---------------------------------------------------------------------------


def examples() -> Iterator[tuple[str, str, str]]:
    """(code, case name, text) of each example in `grammar/bad/`."""
    for path in sorted((folder("grammar") / "bad").glob("G*.giant")):
        text = path.read_text(encoding="utf-8")
        for part in text.split(_MARK)[1:]:
            name, _, example = part.partition("\n")
            yield path.stem, name, example


def first_fault(table: ParseTable, text: str) -> Fault | None:
    """Where the parser first fails in `text`, whatever else is wrong with it."""
    source = SourceFile("example", text)
    sink = Sink()
    lexed = lex(source, sink)
    tokens = drop_newlines(balance(source, lexed, sink), source)
    engine = Engine(table, Builder(source, sink), source, tokens, "start")
    found: list[Fault] = []

    def on_error(at: int) -> None:
        found.append(Fault(engine, at, engine.checkpoints[-1].token))

    engine.run(on_error)
    return found[0] if found else None


def _places(fault: Fault) -> tuple[object, object]:
    """Two ways to say where a fault is: the parser state, and what stands around and could be read.

    The second makes one place of states that differ only in how long a list is so far.
    """
    previous = fault.previous.kind
    if previous == NL:
        previous = "LBRACE" if fault.is_in_braces else END
    section = fault.section
    if section in ("FORWARD", "EXTERN"):
        section = "BLOCK"
    accepted = frozenset(fault.engine.accepted())
    return fault.state, (section, fault.is_in_braces, fault.bracket, previous, accepted)


@lru_cache(maxsize=1)
def _keyed(table: ParseTable) -> dict[object, dict[str, set[str]]]:
    """For each place and kind of token the names of the cases whose examples fail there."""
    cases = {case.name: case for case in CASES}
    found: dict[object, dict[str, set[str]]] = {}
    for _, name, text in examples():
        case = cases.get(name)
        fault = first_fault(table, text)
        if case is None or fault is None:
            raise InternalError(f"the example of a syntax error named `{name}` is out of date")
        kinds = (fault.token.kind,) if case.kinds is None else case.kinds
        for place in _places(fault):
            for kind in kinds:
                found.setdefault(place, {}).setdefault(kind, set()).add(name)
    return found
