"""The canonical layout, made over tokens so that comments and line breaks stay.

What is decided here: indentation, spaces, blank lines, the column of `=` in the map of a
checkpoint and of comments at line ends. What stays the writer's: the order of sections, what
shares a line, where a long line is broken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from giantdsl.diagnostics import Sink
from giantdsl.errors import InternalError
from giantdsl.source import SourceFile
from giantdsl.syntax.brackets import balance
from giantdsl.syntax.equal import ast_equal
from giantdsl.syntax.lexer import lex
from giantdsl.syntax.newlines import drop_newlines
from giantdsl.syntax.parser import parse_file
from giantdsl.syntax.spacing import Context, spaces_before
from giantdsl.syntax.tokens import NL, Token

_STEP = 2
_CONTINUED = 4
_MIN_GAP = 2


@dataclass(slots=True)
class _Line:
    """One line: its tokens with the spaces before each, and what stands around it."""

    number: int
    pieces: list[tuple[int, str, str]] = field(default_factory=list)  # (spaces, text, kind)
    comment: Token | None = None
    is_continued: bool = False
    head: str = ""  # kind of the first token of the section that starts here
    entry_equal: int | None = None  # index of the `=` piece of a plain entry of a checkpoint map
    indent: int = 0

    @property
    def width(self) -> int:
        return self.indent + sum(spaces + len(text) for spaces, text, _ in self.pieces)

    def text(self) -> str:
        return " " * self.indent + "".join(" " * spaces + text for spaces, text, _ in self.pieces)


def format_text(source: SourceFile, sink: Sink) -> str | None:
    """The text in canonical layout; None, and the syntax errors in the sink, if it has any.

    Line ends stay those of the first line; a byte order mark goes.
    """
    found = Sink()
    tree = parse_file(source, found)
    if found.has_errors:
        for diagnostic in found.diagnostics:
            sink.add(diagnostic)
        return None
    formatted = _layout(source)
    again = parse_file(SourceFile(source.name, formatted), found)
    if found.has_errors or not ast_equal(tree.items, again.items):
        raise InternalError(f"the layout of `{source.name}` would change its meaning")
    first = source.text.find("\n")
    return formatted.replace("\n", "\r\n") if source.text[first - 1 : first] == "\r" else formatted


def _layout(source: SourceFile) -> str:
    lines = _lines(source)
    _align_entries(lines)
    _indent(lines)
    comments = _comment_columns(source, lines)
    out: list[str] = []
    for i, line in enumerate(lines):
        if i and _wants_blank(lines, i):
            out.append("")
        text = line.text()
        if line.comment is not None:
            comment = source.text[line.comment.start : line.comment.end].rstrip()
            column = comments.get(line.number, 0)
            text = text.ljust(column) + comment if line.pieces else text + comment
        out.append(text)
    return "\n".join(out) + "\n" if out else ""


# ---- lines ----------------------------------------------------------------------------------


def _lines(source: SourceFile) -> list[_Line]:
    """The lines that hold anything."""
    sink = Sink()
    lexed = lex(source, sink)
    tokens = drop_newlines(balance(source, lexed, sink), source)
    lines: dict[int, _Line] = {}
    context = Context()
    weights = _WeightsTracker()
    for i, token in enumerate(tokens):
        number = source.position(token.start)[0]
        text = source.text[token.start : token.end]
        if token.kind == NL and not _separates(source, tokens, i, number, text):
            context.advance(NL)
            weights.advance(NL)
            continue
        line = lines.get(number)
        if line is None:
            line = lines[number] = _Line(number)
            starts = i == 0 or tokens[i - 1].kind in (NL, "LBRACE")
            line.is_continued = not starts
            line.head = token.kind if starts and context.depth == 0 else ""
            spaces = 0
            weights.start_line(starts)
        else:
            spaces = spaces_before(tokens, i, context)
        if weights.is_entry_equal(token.kind, context):
            line.entry_equal = len(line.pieces)
        elif token.kind in (NL, "LBRACE", "RBRACE"):
            line.entry_equal = None
            weights.spoil_line()
        line.pieces.append((spaces, text, token.kind))
        context.advance(token.kind)
        weights.advance(token.kind)
    for comment in lexed.comments:
        number = source.position(comment.start)[0]
        lines.setdefault(number, _Line(number)).comment = comment
    return [lines[number] for number in sorted(lines)]


def _separates(source: SourceFile, tokens: list[Token], i: int, number: int, text: str) -> bool:
    """A `;` with something after it on its line."""
    if text != ";" or i + 1 == len(tokens) or tokens[i + 1].kind == "RBRACE":
        return False
    return source.position(tokens[i + 1].start)[0] == number


class _WeightsTracker:
    """Finds the `=` of entries in `weights` sections that have their line to themselves."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_weights = False
        self._is_section_start = True
        self._is_open = False

    def start_line(self, starts_statement: bool) -> None:
        self._is_open = starts_statement

    def spoil_line(self) -> None:
        self._is_open = False

    def is_entry_equal(self, kind: str, context: Context) -> bool:
        inside = self._is_weights and self._depth > 0
        return kind == "EQUAL" and inside and self._is_open and not context.brackets

    def advance(self, kind: str) -> None:
        if self._depth == 0 and self._is_section_start:
            self._is_weights = kind == "WEIGHTS"
        self._depth += {"LBRACE": 1, "RBRACE": -1}.get(kind, 0)
        self._is_section_start = self._depth == 0 and kind == NL


def _align_entries(lines: list[_Line]) -> None:
    """Puts the `=` of neighbouring entries below each other."""
    group: list[_Line] = []
    for line in [*lines, _Line(0)]:
        is_next = bool(group) and line.number == group[-1].number + 1
        if line.entry_equal is None or not is_next:
            _align_group(group)
            group = []
        if line.entry_equal is not None:
            group.append(line)


def _align_group(group: list[_Line]) -> None:
    widths = [
        sum(spaces + len(text) for spaces, text, _ in line.pieces[: line.entry_equal])
        for line in group
    ]
    for line, width in zip(group, widths, strict=True):
        at = line.entry_equal
        if at is not None:
            _, text, kind = line.pieces[at]
            line.pieces[at] = (1 + max(widths) - width, text, kind)


# ---- indentation ----------------------------------------------------------------------------


@dataclass(slots=True)
class _Bracket:
    kind: str
    hang: int | None  # column under which lines inside it start; None: nothing follows it
    indent: int  # of the line it stands on


def _indent(lines: list[_Line]) -> None:
    opened: list[_Bracket] = []
    base = 0
    for i, line in enumerate(lines):
        if not line.pieces:
            following = next((x for x in lines[i + 1 :] if x.pieces), None)
            is_continued = following is not None and following.is_continued
            line.indent = _indentation(opened, base, is_continued, "")
            continue
        line.indent = _indentation(opened, base, line.is_continued, line.pieces[0][2])
        if not line.is_continued:
            base = line.indent
        _track(line, opened)


def _indentation(opened: list[_Bracket], base: int, is_continued: bool, first: str) -> int:
    braces = sum(bracket.kind == "LBRACE" for bracket in opened)
    if not is_continued or first == "RBRACE":
        return _STEP * max(0, braces - (first == "RBRACE"))
    inner = opened[-1] if opened else None
    if inner is None or inner.kind == "LBRACE":
        return base + _CONTINUED
    if first in ("RPAR", "RSQB") and inner.hang is None:
        return inner.indent
    return inner.hang if inner.hang is not None else inner.indent + _CONTINUED


def _track(line: _Line, opened: list[_Bracket]) -> None:
    """Notes the brackets of a line whose indentation is known."""
    column = line.indent
    for i, (spaces, text, kind) in enumerate(line.pieces):
        column += spaces + len(text)
        if kind in ("LPAR", "LSQB", "LBRACE"):
            is_last = i + 1 == len(line.pieces)
            opened.append(_Bracket(kind, None if is_last else column, line.indent))
        elif kind in ("RPAR", "RSQB", "RBRACE") and opened:
            opened.pop()


# ---- comments and blank lines ---------------------------------------------------------------


def _comment_columns(source: SourceFile, lines: list[_Line]) -> dict[int, int]:
    """Line number to the column of the comment at its end.

    Comments of neighbouring lines that stand below each other still do afterwards.
    """
    columns: dict[int, int] = {}
    for group in _comment_groups(source, lines):
        gap = max(_MIN_GAP, min(_gap(source, line) for line in group))
        column = max(line.width for line in group) + gap
        columns.update((line.number, column) for line in group)
    return columns


def _comment_groups(source: SourceFile, lines: list[_Line]) -> Iterator[list[_Line]]:
    group: list[_Line] = []
    for line in lines:
        if line.comment is None or not line.pieces:
            continue
        is_next = group and line.number == group[-1].number + 1
        if is_next and _column(source, line) == _column(source, group[-1]):
            group.append(line)
            continue
        if group:
            yield group
        group = [line]
    if group:
        yield group


def _before_comment(source: SourceFile, line: _Line) -> str:
    end = line.comment.start if line.comment else 0
    return source.text[source.line_start(line.number) : end]


def _column(source: SourceFile, line: _Line) -> int:
    return len(_before_comment(source, line).expandtabs(4))


def _gap(source: SourceFile, line: _Line) -> int:
    before = _before_comment(source, line).expandtabs(4)
    return len(before) - len(before.rstrip())


def _wants_blank(lines: list[_Line], i: int) -> bool:
    """One blank line where there were any, and before a block or `forward`; none inside braces
    at their ends."""
    previous, line = lines[i - 1], lines[i]
    if previous.pieces and previous.pieces[-1][2] == "LBRACE":
        return False
    if line.pieces and line.pieces[0][2] == "RBRACE":
        return False
    if line.number > previous.number + 1:
        return True
    return bool(previous.pieces) and _opens_block(lines, i)


def _opens_block(lines: list[_Line], i: int) -> bool:
    """Line `i` is a `block` or `forward`, or the first of the comment lines right above one."""
    while not lines[i].pieces:
        if i + 1 == len(lines) or lines[i + 1].number != lines[i].number + 1:
            return False
        i += 1
    return lines[i].head in ("BLOCK", "FORWARD")
