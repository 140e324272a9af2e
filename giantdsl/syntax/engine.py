"""Runs the LALR table over tokens and builds the tree on the way. Knows nothing of messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from giantdsl.source import SourceFile, Span
from giantdsl.syntax.build import Builder
from giantdsl.syntax.table import ParseTable
from giantdsl.syntax.tokens import END, KEYWORD_KINDS, NL, Token

# Rules that wrap one statement, entry or section: what stands in for an unreadable one goes here.
_WRAPPERS = frozenset({"_item", "_stmt", "_plan", "_entry"})


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The stack where a statement may start, and the first token of that statement."""

    depth: int
    token: int


class Engine:
    """An LR parser whose stacks recovery may cut back.

    `checkpoints` has one entry a brace level, the outermost for the file.
    """

    def __init__(
        self,
        table: ParseTable,
        builder: Builder,
        source: SourceFile,
        tokens: list[Token],
        start: str,
    ) -> None:
        self.table = table
        self.source = source
        self.tokens = tokens
        self.start = start
        self.states = [table.starts[start]]
        self.checkpoints = [Checkpoint(1, 0)]
        self.replaced: set[int] = set()
        self._values: list[Any] = [None]
        self._spans: list[tuple[int, int]] = [(0, 0)]
        self._actions = builder.actions

    def token(self, index: int) -> Token:
        """The token, or the end of the file after the last one."""
        if index < len(self.tokens):
            return self.tokens[index]
        size = len(self.source.text)
        return Token(END, size, size)

    def cut_back(self) -> None:
        """To the state where the statement at hand started."""
        depth = self.checkpoints[-1].depth
        del self.states[depth:], self._values[depth:], self._spans[depth:]

    def restart(self, index: int) -> None:
        """A statement starts at token `index`, without a newline read before it."""
        self.checkpoints[-1] = Checkpoint(len(self.states), index)

    def run(self, on_error: Callable[[int], int | None]) -> Any:
        """The value of the start rule.

        `on_error` gets the index of a token that cannot stand where it does. It cuts the stacks
        back and returns the index to go on from, or None to give up: the value is then None.
        """
        rows, rules = self.table.rows, self.table.rules
        states, values, spans = self.states, self._values, self._spans
        final = self.table.ends[self.start]
        at = 0
        while True:
            token = self.token(at)
            kind = token.kind
            row = rows[states[-1]]
            action = row.get(kind)
            if action is None and kind in KEYWORD_KINDS:
                action = row.get("NAME")
            if action is None:
                following = on_error(at)
                if following is None:
                    return None
                at = following
            elif action >= 0:
                states.append(action)
                values.append(token)
                spans.append((token.start, token.end))
                at += 1
                if kind == NL:
                    self.checkpoints[-1] = Checkpoint(len(states), at)
                elif kind == "LBRACE":
                    self.checkpoints.append(Checkpoint(len(states), at))
                elif kind == "RBRACE":
                    self.checkpoints.pop()
            else:
                rule = rules[~action]
                state = self._reduce(rule.size, rule.action, rule.children, rule.origin)
                if state == final and kind == END:
                    return values[-1]

    def _reduce(
        self, size: int, action: str | None, children: tuple[int | None, ...], origin: str
    ) -> int:
        states, values, spans = self.states, self._values, self._spans
        if size == 1 and action is None:
            value = values.pop()
            del states[-1]
            begin, end = spans.pop()
        else:
            if size:
                popped = values[-size:]
                begin, end = spans[-size][0], spans[-1][1]
                del values[-size:], spans[-size:], states[-size:]
            else:
                popped = []
                begin = end = spans[-1][1]
            value = self._value(popped, action, children, origin, begin, end)
        state = self.table.rows[states[-1]][origin]
        states.append(state)
        values.append(value)
        spans.append((begin, end))
        return state

    def _value(
        self,
        popped: list[Any],
        action: str | None,
        children: tuple[int | None, ...],
        origin: str,
        begin: int,
        end: int,
    ) -> Any:
        if action is None:
            return popped[children[0] or 0]
        if action in _WRAPPERS and begin in self.replaced:
            return []
        kept: list[Any] = []
        for child in children:
            if child is None:
                kept.append(None)
            elif child >= 0:
                kept.append(popped[child])
            elif kept:
                kept.extend(popped[~child])
            else:
                # Taken over, not copied: a list of n statements grows in n steps, not n * n.
                kept = popped[~child]
        if action[0] == "_":
            return kept
        return self._actions[action](kept, Span(self.source, begin, end))

    # ---- looking ahead without doing --------------------------------------------------------

    def accepts(self, kinds: list[str], states: list[int] | None = None) -> bool:
        """Would the tokens of these kinds, one after the other, be read from here?"""
        stack = list(self.states if states is None else states)
        return all(self._shift(stack, kind) for kind in kinds)

    def accepted(self) -> list[str]:
        """The kinds of token that can come next, keywords only where they are keywords."""
        row = self.table.rows[self.states[-1]]
        kinds = [kind for kind in row if kind == END or kind.isupper()]
        if self.states[-1] == self.table.ends[self.start] and END not in row:
            kinds.append(END)
        return [kind for kind in kinds if self._shift(list(self.states), kind)]

    def _shift(self, stack: list[int], kind: str) -> bool:
        rows, rules = self.table.rows, self.table.rules
        while True:
            action = rows[stack[-1]].get(kind)
            if action is None:
                return kind == END and stack[-1] == self.table.ends[self.start]
            if action >= 0:
                stack.append(action)
                return True
            rule = rules[~action]
            if rule.size:
                del stack[-rule.size :]
            stack.append(rows[stack[-1]][rule.origin])
