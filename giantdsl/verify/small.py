"""A spec under a layout, small enough to run in a second. No torch."""

from __future__ import annotations

from collections.abc import Sequence

from giantdsl.driver import Compiled, compile_spec
from giantdsl.source import SourceFile
from giantdsl.verify.layouts import Space
from giantdsl.verify.rows import Layout
from giantdsl.verify.shrink import shrink

_ONE = SourceFile("one process", "parallel {\n  dp = 1\n}\n")


class SmallSpec:
    """Compiles a spec under layouts: shrunk (unless `full`), in float64, on a made-up batch."""

    def __init__(self, compiled: Compiled, *, full: bool = False) -> None:
        """`compiled` is the spec as it would be trained, profiles and overrides applied."""
        self._source, self._full = compiled.source, full
        self._changes = tuple(change.span.text for change in compiled.changes)
        self._has_train = compiled.settings.train is not None
        self.space = Space.of(compiled)
        self._small: dict[int, tuple[str, ...]] = {}
        self._compiled: dict[Layout, Compiled] = {}

    def compile(self, layout: Layout) -> Compiled:
        """Once for each layout. Raises SpecError for one that is not legal."""
        if layout not in self._compiled:
            section = SourceFile(f"layout {layout.label}", layout.section)
            more = [*self._dims(layout.layers), *self._training(layout)]
            self._compiled[layout] = self._with(section, more)
        return self._compiled[layout]

    def _dims(self, layers: int) -> tuple[str, ...]:
        if self._full:
            return ()
        if layers not in self._small:
            self._small[layers] = shrink(lambda more: self._with(_ONE, more), layers)
        return self._small[layers]

    def _training(self, layout: Layout) -> list[str]:
        found = [
            "train.precision=float64",
            "train.data=synthetic()",
            "train.tokenizer=none",
            "train.init=none",
            f"train.batch={layout.batch}",
            f"train.microbatch={layout.microbatch}",
        ]
        return found if self._has_train else [*found, "train.steps=1", "train.optimizer=adamw()"]

    def _with(self, section: SourceFile, more: Sequence[str]) -> Compiled:
        return compile_spec(self._source, overrides=[*self._changes, *more], parallel=section)
