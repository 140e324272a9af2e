"""The shape of a `weights` section, as this package reads it.

`giantdsl.syntax.ast` has these nodes. They are described here by their fields, so that loading
a checkpoint does not need the parser.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from giantdsl.source import Span


class NameNode(Protocol):
    @property
    def text(self) -> str: ...
    @property
    def span(self) -> Span: ...


class StringNode(Protocol):
    @property
    def value(self) -> str: ...
    @property
    def span(self) -> Span: ...


class SegmentNode(Protocol):
    """One step of a path: `("q",)`, `("*",)` or `("q", "k", "v")`."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def span(self) -> Span: ...


class GroupNode(Protocol):
    """`d` or `(_ heads hd)`: one dimension of a stored tensor."""

    @property
    def names(self) -> Sequence[NameNode]: ...
    @property
    def span(self) -> Span: ...


class EntryNode(Protocol):
    """`attention.(q, k, v) = "attn.c_attn" [d, (_ heads hd)]`, or a prefix with `children`."""

    @property
    def path(self) -> Sequence[SegmentNode]: ...
    @property
    def path_span(self) -> Span: ...
    @property
    def target(self) -> StringNode: ...
    @property
    def transposed(self) -> bool: ...
    @property
    def layout(self) -> Sequence[GroupNode] | None: ...
    @property
    def children(self) -> Sequence[EntryNode] | None: ...
    @property
    def span(self) -> Span: ...


@runtime_checkable
class WeightsNode(Protocol):
    """`weights hf { … }` or `weights hf from "std/hf/gpt2"`."""

    @property
    def name(self) -> NameNode: ...
    @property
    def entries(self) -> Sequence[EntryNode] | None: ...
    @property
    def path(self) -> StringNode | None: ...
    @property
    def span(self) -> Span: ...


class FileNode(Protocol):
    """A parsed file: sections of all kinds, those that are maps among them."""

    @property
    def items(self) -> Sequence[object]: ...
