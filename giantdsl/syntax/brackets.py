"""Brackets that do not match: reported once, then mended, so the parser sees balanced tokens.

A missing bracket shows far from where it is missing. `{` decides: what must stand inside braces
or between sections closes whatever was left open in ( ) and [ ].
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from giantdsl.diagnostics import Diagnostic, Fix, Label, Sink
from giantdsl.source import SourceFile
from giantdsl.syntax.lexer import Lexed
from giantdsl.syntax.sections import is_section_start, is_statement_start
from giantdsl.syntax.tokens import END, NL, Token

_CLOSER = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}
_OPENER = {"RPAR": "LPAR", "RSQB": "LSQB"}
_SIGN = {"LPAR": "(", "RPAR": ")", "LSQB": "[", "RSQB": "]", "LBRACE": "{", "RBRACE": "}"}
_BRACKETS = frozenset(_SIGN)


def balance(source: SourceFile, lexed: Lexed, sink: Sink) -> list[Token]:
    """The tokens with every ( ) [ ] matched and every `{` closed. A stray `}` is left in.

    Offsets of what was mended are added to `lexed.faults`.
    """
    return _Balancer(source, lexed, sink).run()


@dataclass(slots=True)
class _Edits:
    """Tokens to put in before an index, and indices to leave out or to turn into others."""

    before: dict[int, list[Token]]
    dropped: set[int]
    changed: dict[int, Token]

    def apply(self, tokens: Sequence[Token]) -> list[Token]:
        if not (self.before or self.dropped or self.changed):
            return list(tokens)
        result: list[Token] = []
        for i, token in enumerate(tokens):
            result += self.before.get(i, ())
            if i not in self.dropped:
                result.append(self.changed.get(i, token))
        return result + self.before.get(len(tokens), [])


class _Balancer:
    def __init__(self, source: SourceFile, lexed: Lexed, sink: Sink) -> None:
        self._source = source
        self._tokens = lexed.tokens
        self._lexed = lexed
        self._sink = sink
        self._open: list[int] = []
        self._edits = _Edits({}, set(), {})

    def run(self) -> list[Token]:
        tokens, opened = self._tokens, self._open
        is_line_start = True
        for i, token in enumerate(tokens):
            kind = token.kind
            if kind in _BRACKETS:
                if kind == "LBRACE":
                    self._close_round(i)
                    opened.append(i)
                elif kind == "RBRACE":
                    self._close_round(i)
                    if opened:
                        opened.pop()
                elif kind in _CLOSER:
                    opened.append(i)
                else:
                    self._close(i, kind)
            elif is_line_start and opened and is_section_start(tokens, i, self._source):
                self._close_round(i)
                self._close_braces(i)
            is_line_start = kind == NL
        self._close_round(len(tokens))
        self._close_braces(len(tokens))
        return self._edits.apply(tokens)

    # ---- ( ) and [ ] ------------------------------------------------------------------------

    def _close(self, i: int, kind: str) -> None:
        """A `)` or `]`: the innermost opener of its kind, else it is wrong."""
        opened, tokens = self._open, self._tokens
        wanted = _OPENER[kind]
        if opened and tokens[opened[-1]].kind == wanted:
            opened.pop()
            return
        depth = len(opened)
        while depth and tokens[opened[depth - 1]].kind not in ("LBRACE", wanted):
            depth -= 1
        if depth and tokens[opened[depth - 1]].kind == wanted:
            unclosed = opened[depth:]
            del opened[depth - 1 :]
            self._insert(i, [self._closer(o, tokens[i].start) for o in reversed(unclosed)])
            self._report_unclosed(unclosed[0], tokens[i], [tokens[o].kind for o in unclosed])
        elif opened and tokens[opened[-1]].kind != "LBRACE":
            self._wrong_closer(opened.pop(), i)
        else:
            self._edits.dropped.add(i)
            self._report_stray(tokens[i])

    def _close_round(self, i: int) -> None:
        """Token `i` cannot stand inside ( ) or [ ]: those still open are never closed."""
        opened, tokens = self._open, self._tokens
        first = len(opened)
        while first and tokens[opened[first - 1]].kind != "LBRACE":
            first -= 1
        unclosed = opened[first:]
        del opened[first:]
        start = 0
        while start < len(unclosed):
            place = self._likely_end(unclosed[start], i)
            end = bisect.bisect_left(unclosed, place, start)
            group = unclosed[start:end]
            start = end
            offset = tokens[place].start if place < len(tokens) else len(self._source.text)
            self._insert(place, [self._closer(o, offset) for o in reversed(group)])
            seen = place + 1 if place < i and tokens[place].kind == NL else place
            witness = tokens[seen] if seen < len(tokens) else None
            self._report_unclosed(group[0], witness, [tokens[o].kind for o in group])

    def _likely_end(self, opener: int, limit: int) -> int:
        """Index of the `_NL` after which a new statement seems to start, else `limit`."""
        tokens = self._tokens
        margin = self._indentation(tokens[opener])
        for j in range(opener + 1, min(limit, len(tokens) - 1)):
            if tokens[j].kind != NL:
                continue
            if self._source.text[tokens[j].start] == ";":
                return j
            following = tokens[j + 1]
            if self._indentation(following) <= margin and is_statement_start(tokens, j + 1):
                return j
        if limit and limit - 1 > opener and tokens[limit - 1].kind == NL:
            return limit - 1
        return limit

    def _indentation(self, token: Token) -> int:
        line = self._source.line_text(self._source.position(token.start)[0])
        return len(line) - len(line.lstrip())

    # ---- { } --------------------------------------------------------------------------------

    def _close_braces(self, i: int) -> None:
        """At a section or the end of the file every `{` should have been closed."""
        unclosed = list(self._open)
        self._open.clear()
        if not unclosed:
            return
        tokens = self._tokens
        at = tokens[i].start if i < len(tokens) else len(self._source.text)
        closers = [Token("RBRACE", at, at) for _ in unclosed]
        self._insert(i, closers if i == len(tokens) else [*closers, Token(NL, at, at)])
        opener = tokens[unclosed[0]]
        count = len(unclosed)
        if self._is_excused(opener.start, at):
            return
        others: tuple[Label, ...] = ()
        if i < len(tokens):
            word = self._text(tokens[i])
            span = self._source.span(tokens[i].start, tokens[i].end)
            others = (Label(span, f"`{word}` starts a section, but this is still inside"),)
        self._sink.add(
            Diagnostic(
                "G007",
                "a `{` is never closed",
                Label(self._source.span(opener.start, opener.end), "opened here"),
                "add the missing `}`" if count == 1 else f"add the {count} missing `}}`",
                others,
            )
        )

    # ---- reports ----------------------------------------------------------------------------

    def _text(self, token: Token) -> str:
        return self._source.text[token.start : token.end]

    def _insert(self, i: int, tokens: list[Token]) -> None:
        self._edits.before.setdefault(i, []).extend(tokens)

    def _closer(self, opener: int, at: int) -> Token:
        return Token(_CLOSER[self._tokens[opener].kind], at, at)

    def _is_excused(self, start: int, end: int) -> bool:
        """An unclosed string in between may have swallowed the bracket."""
        swallowed = self._lexed.swallowed
        at = bisect.bisect_left(swallowed, start)
        return at < len(swallowed) and swallowed[at] < end

    def _report_unclosed(self, opener: int, witness: Token | None, kinds: list[str]) -> None:
        token = self._tokens[opener]
        end = witness.start if witness else len(self._source.text)
        bisect.insort(self._lexed.faults, token.start)
        if self._is_excused(token.start, end):
            return
        sign = _SIGN[token.kind]
        missing = " and ".join(f"`{_SIGN[_CLOSER[kind]]}`" for kind in reversed(kinds))
        others: tuple[Label, ...] = ()
        if witness is not None and witness.kind != END:
            span = self._source.span(witness.start, witness.end)
            others = (Label(span, f"this cannot stand inside `{sign}`"),)
        self._sink.add(
            Diagnostic(
                "G008",
                f"a `{sign}` is never closed",
                Label(self._source.span(token.start, token.end), "opened here"),
                f"add the missing {missing}",
                others,
            )
        )

    def _is_known(self, token: Token) -> bool:
        """Something before it on its line is wrong already."""
        start = self._source.line_start(self._source.position(token.start)[0])
        faults = self._lexed.faults
        at = bisect.bisect_left(faults, start)
        return at < len(faults) and faults[at] < token.start

    def _wrong_closer(self, opener: int, i: int) -> None:
        token, closer = self._tokens[opener], self._tokens[i]
        wanted = _CLOSER[token.kind]
        self._edits.changed[i] = Token(wanted, closer.start, closer.end)
        is_known = self._is_known(closer)
        bisect.insort(self._lexed.faults, closer.start)
        if is_known:
            return
        span = self._source.span(closer.start, closer.end)
        self._sink.add(
            Diagnostic(
                "G009",
                f"`{self._text(closer)}` closes a `{self._text(token)}`",
                Label(span, f"`{_SIGN[wanted]}` is wanted here"),
                f"write `{_SIGN[wanted]}`",
                (Label(self._source.span(token.start, token.end), "opened here"),),
                (Fix(span, _SIGN[wanted]),),
            )
        )

    def _report_stray(self, token: Token) -> None:
        is_known = self._is_known(token)
        bisect.insort(self._lexed.faults, token.start)
        if is_known:
            return
        span = self._source.span(token.start, token.end)
        self._sink.add(
            Diagnostic(
                "G009",
                f"`{self._text(token)}` closes nothing",
                Label(span, "nothing is open here"),
                "remove it, or open it before",
            )
        )
