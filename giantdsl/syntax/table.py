"""The parse table of `grammar/giant.lark`: made by lark, kept as JSON, read without lark.

lark needs a quarter of a second to import and to build the table, more than `giantdsl check` may
take in all. So the table is shipped as `grammar/giant.table.json`, written by
`python -m giantdsl.syntax.table` and tested to be current. It carries a checksum of the grammar:
where the two disagree (somebody edits the grammar) the table is built in memory instead. Nothing
is ever written at run time, so read-only installs and races do not matter.
"""

from __future__ import annotations

import json
import os
import zlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from giantdsl.errors import InternalError
from giantdsl.resources import folder

if TYPE_CHECKING:
    from lark import Lark

STARTS = ("start", "expr", "setting")
END = "$END"


@dataclass(frozen=True, slots=True)
class Rule:
    """A production: what to pop, and which of it the action of that name gets.

    `action` is None when the only child is handed up as it is; `_name` when the children are
    spliced into the parent's. Each of `children` is the place of a symbol, ~place when that
    symbol's values are spliced in, or None for an optional part that is not there.
    """

    origin: str
    size: int
    action: str | None
    children: tuple[int | None, ...]
    symbols: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ParseTable:
    """LALR(1): `rows[state][symbol]` is the next state, or ~rule to reduce by that rule."""

    rows: tuple[dict[str, int], ...]
    rules: tuple[Rule, ...]
    starts: dict[str, int]
    ends: dict[str, int]


def load_table(directory: Path | None = None) -> ParseTable:
    """The shipped table when it is that of the grammar beside it, else one built by lark."""
    directory = directory or folder("grammar")
    try:
        grammar = (directory / "giant.lark").read_bytes()
    except OSError as error:
        raise InternalError(f"the grammar is not installed: {error}") from error
    try:
        data = json.loads((directory / "giant.table.json").read_bytes())
    except (OSError, ValueError):
        data = None
    if data is None or data.get("checksum") != _checksum(grammar):
        data = build_data(grammar.decode())
    return _table_of(data)


def _checksum(grammar: bytes) -> int:
    return zlib.crc32(grammar.replace(b"\r\n", b"\n"))


def _table_of(data: dict[str, Any]) -> ParseTable:
    symbols: list[str] = data["symbols"]
    rows = tuple(
        dict(zip((symbols[i] for i in row[::2]), row[1::2], strict=True)) for row in data["rows"]
    )
    rules = tuple(
        Rule(symbols[origin], len(body), action, tuple(children), tuple(symbols[i] for i in body))
        for origin, body, action, children in data["rules"]
    )
    return ParseTable(rows, rules, data["starts"], data["ends"])


# ---- made by lark: at development time, or when the shipped table is missing ---------------


def build_lark(grammar: str, *, strict: bool = False) -> Lark:
    """lark's own parser of the grammar. `strict` raises on any conflict."""
    from lark import Lark, Token

    class AllNewlines:
        always_accept = ("_NL",)

        def process(self, stream: Iterable[Token]) -> Iterable[Token]:
            yield from stream

    return Lark(
        grammar,
        parser="lalr",
        lexer="contextual",
        start=list(STARTS),
        maybe_placeholders=True,
        propagate_positions=True,
        strict=strict,
        postlex=AllNewlines(),
    )


def build_data(grammar: str) -> dict[str, Any]:
    """The table as plain data, the same on every run: states are numbered breadth first."""
    table = build_lark(grammar).parser.parser._parse_table
    order = _breadth_first(table)
    number = {state: i for i, state in enumerate(order)}
    rules: dict[Any, int] = {}
    rows: list[dict[str, int]] = []
    for state in order:
        row = {}
        for symbol, (action, argument) in sorted(table.states[state].items()):
            if action.name == "Shift":
                row[symbol] = number[argument]
            else:
                row[symbol] = ~rules.setdefault(argument, len(rules))
        rows.append(row)
    names = sorted({s for row in rows for s in row} | {s.name for r in rules for s in r.expansion})
    names += sorted({rule.origin.name for rule in rules} - set(names))
    symbols = {name: i for i, name in enumerate(names)}
    return {
        "checksum": _checksum(grammar.encode()),
        "symbols": names,
        "starts": {name: number[state] for name, state in table.start_states.items()},
        "ends": {name: number[state] for name, state in table.end_states.items()},
        "rules": [_rule_data(rule, symbols) for rule in rules],
        "rows": [[x for s, a in row.items() for x in (symbols[s], a)] for row in rows],
    }


def _breadth_first(table: Any) -> list[int]:
    queue = deque(table.start_states[name] for name in STARTS)
    order: dict[int, None] = dict.fromkeys(queue)
    while queue:
        for _, (action, argument) in sorted(table.states[queue.popleft()].items()):
            if action.name == "Shift" and argument not in order:
                order[argument] = None
                queue.append(argument)
    return list(order)


def _rule_data(rule: Any, symbols: dict[str, int]) -> list[Any]:
    """[origin, body, action, children]; children as in `Rule`."""
    empty = "".join(str(int(is_empty)) for is_empty in rule.options.empty_indices)
    gaps = [len(ones) for ones in empty.split("0")] if empty else [0] * (len(rule.expansion) + 1)
    children: list[int | None] = []
    for i, symbol in enumerate(rule.expansion):
        children += [None] * gaps[i]
        if symbol.is_term:
            if not symbol.filter_out:
                children.append(i)
        else:
            children.append(~i if symbol.name.startswith("_") else i)
    children += [None] * gaps[-1]
    name = rule.origin.name
    passes_up = rule.options.expand1 and rule.alias is None and len(children) == 1
    action = None if passes_up else rule.alias or name
    return [symbols[name], [symbols[s.name] for s in rule.expansion], action, children]


def write_table() -> Path:
    """Writes `giant.table.json` beside the grammar, whole or not at all."""
    directory = folder("grammar")
    data = build_data((directory / "giant.lark").read_text(encoding="utf-8"))
    path = directory / "giant.table.json"
    scratch = path.with_suffix(f".{os.getpid()}.tmp")
    scratch.write_text(json.dumps(data, separators=(",", ":")) + "\n", encoding="utf-8")
    os.replace(scratch, path)
    return path


if __name__ == "__main__":
    print(write_table())
