"""A spec as Python sees it: `giantdsl.load`, `giantdsl.loads`, `Spec`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from giantdsl.diagnostics import Diagnostic
from giantdsl.driver import Compiled, compile_spec, make_plan
from giantdsl.ir.parameters import count_parameters
from giantdsl.plan import Plan
from giantdsl.running import base_dir, make_job
from giantdsl.source import SourceFile

if TYPE_CHECKING:
    from torch import nn

    from giantdsl.train.job import TrainJob
    from giantdsl.verify.rows import Row


class Spec:
    """A checked spec under its profile and overrides."""

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        self._plan: Plan | None = None

    @property
    def compiled(self) -> Compiled:
        """What the compiler found: program, settings, checkpoint maps."""
        return self._compiled

    @property
    def model(self) -> str:
        """The name on the `model` line."""
        return self._compiled.program.model

    @property
    def dims(self) -> dict[str, int]:
        """The sizes of the `dims` section, in elements; axes sized by the batch are left out."""
        program = self._compiled.program
        sizes = {name: axis.size for name, axis in program.axes.items()}
        return {name: size for name, size in sizes.items() if size is not None}

    @property
    def num_parameters(self) -> int:
        """Each logical element once, however often it is used; padding is not counted."""
        return count_parameters(self._compiled.program)

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """What the checker would rather see otherwise."""
        return self._compiled.warnings

    @property
    def plain_plan(self) -> Plan:
        """The plan of one process: emitted source, inputs, parameters."""
        if self._plan is None:
            self._plan = make_plan(self._compiled)
        return self._plan

    def source(self) -> str:
        """The plain module as text: one Python file that imports torch only."""
        return self.plain_plan.source

    def module(self, seed: int = 0) -> nn.Module:
        """The plain module on the CPU in float32, its values drawn from `seed`.

        It is called with forward's tensors by name and returns what forward returns; `.losses`
        holds the losses of the last call by name.
        """
        from giantdsl.runtime.loader import build_module

        return build_module(self.plain_plan, seed=seed, search_path=base_dir(self._compiled))

    def job(
        self,
        run_dir: str | Path | None = None,
        *,
        resume: str = "auto",
        device: str | None = None,
        quiet: bool = False,
    ) -> TrainJob:
        """What `giantdsl.train` runs. Raises SettingsError for what cannot be trained."""
        folder = None if run_dir is None else Path(run_dir)
        return make_job(self._compiled, run_dir=folder, resume=resume, device=device, quiet=quiet)

    def verify(
        self, layouts: Sequence[str] = (), *, full: bool = False, seed: int = 0
    ) -> list[Row]:
        """What `giantdsl.verify` does: a row for each layout, `.ok` where it equals one process."""
        from giantdsl.verify.layouts import parse_layouts, spec_layout
        from giantdsl.verify.runner import Runner
        from giantdsl.verify.small import SmallSpec

        small = SmallSpec(self._compiled, full=full)
        found = parse_layouts(layouts, small.space) if layouts else [spec_layout(small.space)]
        most = max(layout.ranks for layout in found)
        with Runner(small.compile, most_ranks=most, seed=seed) as runner:
            rows = [runner.run(layout) for layout in found]
        return [row for row in rows if row is not None]

    def __repr__(self) -> str:
        return f"Spec({self.model!r}, {self.num_parameters:,} parameters)"


def load(
    path: str | Path,
    overrides: Sequence[str] = (),
    profile: str | Iterable[str] | None = None,
) -> Spec:
    """Read and check a `.giant` file.

    `overrides` are `"key=value"` as on the command line; `profile` is a name, or several that
    apply in order. Raises SpecError with every diagnostic, SettingsError for a file that cannot
    be read or an unknown profile.
    """
    return Spec(compile_spec(path, overrides=overrides, profiles=_profiles(profile)))


def loads(
    text: str,
    overrides: Sequence[str] = (),
    profile: str | Iterable[str] | None = None,
    *,
    name: str = "<string>",
) -> Spec:
    """Check a spec given as text. `name` stands for the file in messages and for its imports."""
    source = SourceFile(name, text)
    return Spec(compile_spec(source, overrides=overrides, profiles=_profiles(profile)))


def _profiles(profile: str | Iterable[str] | None) -> list[str]:
    if profile is None:
        return []
    return [profile] if isinstance(profile, str) else list(profile)
