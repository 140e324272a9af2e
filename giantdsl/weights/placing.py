"""Placing the entries of a map one by one: each finds its layers and makes their rules."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from giantdsl.diagnostics import Diagnostic, Label, Sink
from giantdsl.ir.nodes import Program
from giantdsl.source import Span
from giantdsl.weights.faults import no_layer, placed_twice
from giantdsl.weights.layout import build_recipe
from giantdsl.weights.recipe import MEMBER, Rule
from giantdsl.weights.slots import Layers, Slot
from giantdsl.weights.tree import EntryNode, SegmentNode


@dataclass(frozen=True, slots=True)
class _Placed:
    """What an entry claimed, for the message when another one claims it too."""

    name: str
    span: Span


class Placer:
    """Collects rules and remembers what has a place already."""

    def __init__(self, program: Program, layers: Layers, sink: Sink) -> None:
        self.program = program
        self.layers = layers
        self.sink = sink
        self.rules: list[Rule] = []
        self.parameters: dict[tuple[str, str], _Placed] = {}
        self.stored: dict[str, _Placed] = {}
        self.has_failed = False

    def visit(self, entry: EntryNode, prefix: tuple[SegmentNode, ...], target: str) -> None:
        """Place an entry, or those inside it. Nothing inside a wrong prefix is reported."""
        path = (*prefix, *entry.path)
        full = ".".join(part for part in (target, entry.target.value) if part)
        if entry.children is None:
            self._place(entry, prefix, path, full)
            return
        if entry.transposed or entry.layout is not None:
            self._fail(
                Diagnostic(
                    "G504",
                    "a prefix has no layout",
                    Label(entry.target.span, "this stands for several tensors"),
                    "write the layout behind the names inside the braces",
                )
            )
            return
        names = list(_names(path))
        if not any(name in self.layers.prefixes for name in names):
            self._fail(no_layer(self.layers, entry, prefix, names[0]))
            return
        for child in entry.children:
            self.visit(child, path, full)

    def _fail(self, diagnostic: Diagnostic) -> None:
        """Report a fault of the map; weights without a place may follow from it."""
        self.has_failed = True
        self.sink.add(diagnostic)

    def _place(
        self,
        entry: EntryNode,
        prefix: tuple[SegmentNode, ...],
        path: tuple[SegmentNode, ...],
        target: str,
    ) -> None:
        stars = sum(segment.names == ("*",) for segment in path)
        if not self._check_stars(entry, target, stars):
            return
        names: list[str] = []
        members: list[dict[str, tuple[Slot, ...]]] = []
        only: str | None = None
        for name in _names(path):
            owner, _, leaf = name.rpartition(".")
            found = self.layers.slots.get(name)
            if found is None and leaf in _by_leaf(self.layers.slots.get(owner, ())):
                name, only, found = owner, leaf, self.layers.slots[owner]
            if found is None:
                self._fail(no_layer(self.layers, entry, prefix, name))
                return
            names.append(name)
            members.append(_by_leaf(found, only))
        if self._check_fusing(entry, names) and self._check_transposed(entry, members):
            self._add_rules(entry, names, members, target, verbatim=only is not None)

    def _check_stars(self, entry: EntryNode, target: str, stars: int) -> bool:
        written = target.count("*")
        if written == stars:
            return True
        self._fail(
            Diagnostic(
                "G505",
                f"`{target}` has {_count(written, '`*`')}, its layers have {stars}",
                Label(
                    entry.target.span,
                    "the index of a layer has no place"
                    if written < stars
                    else "an index that no layer has",
                ),
                "write one `*` on each side for each loop",
            )
        )
        return False

    def _check_fusing(self, entry: EntryNode, names: list[str]) -> bool:
        """Several layers in one tensor need a layout that tells them apart."""
        words = [name.text for group in entry.layout or () for name in group.names]
        if len(names) == 1 or MEMBER in words:
            return True
        if entry.layout is None:
            label = Label(entry.target.span, "a layout is missing here")
        else:
            label = Label(entry.layout[0].span.to(entry.layout[-1].span), "no `_` here")
        self._fail(
            Diagnostic(
                "G504",
                f"{len(names)} layers in one stored tensor, and nothing tells them apart",
                label,
                "write the layout of the stored tensor with a `_`: `[(_ heads hd), d]`",
            )
        )
        return False

    def _add_rules(
        self,
        entry: EntryNode,
        names: list[str],
        members: list[dict[str, tuple[Slot, ...]]],
        target: str,
        *,
        verbatim: bool,
    ) -> None:
        for leaf in members[0]:
            self._claim_parameters(entry, names, leaf)
            stored = target if verbatim or leaf == "" else f"{target}.{leaf}"
            if not self._claim_stored(entry, stored):
                continue
            groups = [member.get(leaf, ()) for member in members]
            if any(len(group) != len(groups[0]) for group in groups):
                self._unequal(entry, names)
                continue
            for slots in zip(*groups, strict=True):
                self._add_rule(entry, names, slots, leaf, target, stored)
        for name, member in zip(names, members, strict=True):
            if member.keys() != members[0].keys():
                self._unequal(entry, [names[0], name])

    def _add_rule(
        self,
        entry: EntryNode,
        names: list[str],
        slots: Sequence[Slot],
        leaf: str,
        target: str,
        stored: str,
    ) -> None:
        first = slots[0]
        for name, slot in zip(names, slots, strict=True):
            same = slot.weight.axes == first.weight.axes
            if not same or slot.indices != first.indices:
                self._unequal(entry, [names[0], name])
                return
        recipe = build_recipe(entry, target, first.weight, len(slots), self.program, self.sink)
        if recipe is None:
            return
        parameters = tuple(f"{name}.{leaf}" if leaf else name for name in names)
        tied = any(slot.is_tied for slot in slots)
        self.rules.append(Rule(stored, parameters, first.indices, recipe, tied))

    def _check_transposed(
        self, entry: EntryNode, members: list[dict[str, tuple[Slot, ...]]]
    ) -> bool:
        if not entry.transposed:
            return True
        if entry.layout is not None:
            message = "`.T` and a layout are two answers to one question"
            help_ = "take the `.T` out; the layout says it all"
        elif not any(
            slot.weight.in_axes and slot.weight.out_axes
            for member in members
            for slots in member.values()
            for slot in slots
        ):
            message, help_ = "nothing to transpose", "take the `.T` out"
        else:
            return True
        self._fail(Diagnostic("G504", message, Label(entry.target.span, "`.T` here"), help_))
        return False

    def _claim_parameters(self, entry: EntryNode, names: list[str], leaf: str) -> None:
        for name in names:
            shown = f"{name}.{leaf}" if leaf else name
            before = self.parameters.setdefault((name, leaf), _Placed(shown, entry.path_span))
            if before.span != entry.path_span or names.count(name) > 1:
                self._fail(placed_twice(shown, entry.path_span, before.span))

    def _claim_stored(self, entry: EntryNode, stored: str) -> bool:
        span = entry.target.span
        before = self.stored.get(stored) or self._overlapping(stored)
        if before is None:
            self.stored[stored] = _Placed(stored, span)
            return True
        self._fail(placed_twice(stored, span, before.span))
        return False

    def _overlapping(self, stored: str) -> _Placed | None:
        """An earlier name that some index makes equal to this one."""
        mine = _as_pattern(stored)
        for name, placed in self.stored.items():
            if ("*" in name or "{" in name) != ("*" in stored or "{" in stored):
                pattern, literal = (mine, name) if mine is not None else (_as_pattern(name), stored)
                if pattern is not None and pattern.fullmatch(literal):
                    return placed
        return None

    def _unequal(self, entry: EntryNode, names: list[str]) -> None:
        self._fail(
            Diagnostic(
                "G504",
                f"`{names[0]}` and `{names[-1]}` have different axes",
                Label(entry.path_span, "cannot be one stored tensor"),
                "fused layers have the same axes; map the others on lines of their own",
            )
        )

    def check_complete(self, map_name: str, span: Span) -> None:
        """G502 for layers that no entry places, unless a wrong entry was meant for them."""
        if self.has_failed:
            return
        missing: list[str] = []
        for layer, slots in self.layers.slots.items():
            left = [s.weight.leaf for s in slots if (layer, s.weight.leaf) not in self.parameters]
            if left:
                whole = len(left) == len(slots) or left[0] != "bias"
                missing.append(layer if whole else f"{layer}.bias")
        if missing:
            shown = ", ".join(f"`{name}`" for name in missing[:4])
            more = f" and {len(missing) - 4} more" if len(missing) > 4 else ""
            self._fail(
                Diagnostic(
                    "G502",
                    f"`weights {map_name}` does not place every weight",
                    Label(span, "incomplete map"),
                    f"missing: {shown}{more}",
                )
            )


def _by_leaf(slots: Sequence[Slot], only: str | None = None) -> dict[str, tuple[Slot, ...]]:
    found: dict[str, tuple[Slot, ...]] = {}
    for slot in slots:
        leaf = slot.weight.leaf
        if only is None or leaf == only:
            found[leaf] = (*found.get(leaf, ()), slot)
    return found


def _names(path: Sequence[SegmentNode]) -> Iterator[str]:
    """Every layer a path stands for, in order: `a.(q, k)` is `a.q`, `a.k`."""
    for parts in itertools.product(*(segment.names for segment in path)):
        yield ".".join(parts)


def _as_pattern(stored: str) -> re.Pattern[str] | None:
    """What `*` and `{axis}` can stand for; None for a name without them."""
    if "*" not in stored and "{" not in stored:
        return None
    parts = re.split(r"\*|\{[^{}]*\}", stored)
    return re.compile("[0-9]+".join(re.escape(part) for part in parts))


def _count(number: int, what: str) -> str:
    return f"no {what}" if number == 0 else f"{number} {what}"
