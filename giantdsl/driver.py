"""The compiler on one page: read, parse, check, lower, plan, emit. No torch."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from giantdsl import resources
from giantdsl.diagnostics import Diagnostic, Sink
from giantdsl.emit import emit_module
from giantdsl.errors import SettingsError
from giantdsl.ir.flops import count_flops
from giantdsl.ir.nodes import Program
from giantdsl.ir.parameters import Parameter, count_parameters, iter_parameters
from giantdsl.ir.types import BUILTIN_DTYPES, AxisKind, base_axis
from giantdsl.passes.inference import cached_program
from giantdsl.passes.legality import check_plan
from giantdsl.plan import InputInfo, ParameterInfo, Plan
from giantdsl.sema.analyze import analyze, dims_of
from giantdsl.sema.dims import Dims
from giantdsl.sema.settings import dims_overrides, resolve
from giantdsl.settings.origins import Origins
from giantdsl.settings.values import Settings
from giantdsl.source import SourceFile
from giantdsl.syntax import ast, parse_file, parse_setting, read_source
from giantdsl.weights.resolve import check_maps
from giantdsl.weights.tree import WeightsNode


@dataclass(frozen=True, slots=True)
class Compiled:
    """A spec that was found right. `warnings` may still be worth showing.

    `changes` are the settings of profiles and the command line in the order they were applied,
    `plan` the `parallel` section of a plan file, where one was given.
    """

    source: SourceFile
    tree: ast.File
    program: Program
    settings: Settings
    warnings: tuple[Diagnostic, ...]
    weight_maps: dict[str, WeightsNode]
    changes: tuple[ast.Setting, ...] = ()
    plan: ast.Parallel | None = None


def compile_spec(
    spec: str | pathlib.Path | SourceFile,
    *,
    overrides: Sequence[str] = (),
    profiles: Sequence[str] = (),
    plan_file: str | pathlib.Path | None = None,
    parallel: SourceFile | None = None,
) -> Compiled:
    """Check a spec under its overrides.

    Args:
      spec: the file, or its text as a SourceFile.
      overrides: `path=value` in the language's own values, applied after profiles, later wins.
      profiles: names of `profile` sections, applied in order.
      plan_file: a file whose `parallel` section replaces the spec's.
      parallel: the text of such a section, which nothing overrides: profiles and overrides then
        change everything but the plan.

    Raises:
      SpecError: with every diagnostic of the file.
      SettingsError: the file cannot be read.
    """
    sink = Sink()
    source = spec if isinstance(spec, SourceFile) else read_source(pathlib.Path(spec), sink)
    sink.raise_if_errors()
    assert source is not None
    tree = parse_file(source, sink)
    plan = None if plan_file is None else _plan_section(pathlib.Path(plan_file), sink)
    if parallel is not None:
        plan = _section(parallel, sink)
    if plan is not None:
        kept = [item for item in tree.items if not isinstance(item, ast.Parallel)]
        tree = ast.File(span=tree.span, source=tree.source, items=(*kept, plan))
    sink.raise_if_errors()
    settings_nodes = [_override(text, sink) for text in overrides]
    sink.raise_if_errors()
    changes = [node for node in settings_nodes if node is not None]
    chosen = _profiles(tree, profiles)
    if parallel is not None:
        chosen = [_without_plan(profile) for profile in chosen]
        changes = [node for node in changes if not _is_of_plan(node)]
    dims = dims_of(tree, dims_overrides(chosen, changes), sink)
    program = analyze(tree, dims, _Loader(sink), sink)
    settings, origins = _settings(tree, dims, chosen, changes, sink)
    maps: dict[str, WeightsNode] = {}
    if program is not None and not sink.has_errors:
        check_plan(program, settings, origins, sink)
        maps = check_maps(tree, program, _Loader(sink), sink)
    sink.raise_if_errors()
    assert program is not None
    applied = (*(s for profile in chosen for s in profile.settings), *changes)
    warnings = tuple(sink.diagnostics)
    return Compiled(source, tree, program, settings, warnings, maps, applied, plan)


class _Loader:
    """Finds imported files: beside the importing file, then in the library that ships with us."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._files: dict[pathlib.Path, ast.File] = {}

    def __call__(self, name: str, importer: SourceFile) -> ast.File | None:
        beside = pathlib.Path(importer.name).parent / f"{name}.giant"
        for path in (beside, resources.std_path(name)):
            if path is not None and path.is_file():
                return self._read(path)
        return None

    def _read(self, path: pathlib.Path) -> ast.File | None:
        if path not in self._files:
            source = read_source(path, self._sink)
            if source is None:
                return None
            self._files[path] = parse_file(source, self._sink)
        return self._files[path]


def _override(text: str, sink: Sink) -> ast.Setting | None:
    """`train.steps=20`, as written on the command line."""
    if "=" not in text:
        raise SettingsError(f"an override is written key=value, not `{text}`")
    return parse_setting(SourceFile("command line", text), sink)


def _profiles(tree: ast.File, names: Sequence[str]) -> list[ast.Profile]:
    known = {item.name.text: item for item in tree.items if isinstance(item, ast.Profile)}
    missing = [name for name in names if name not in known]
    if missing:
        has = ", ".join(known) or "none"
        raise SettingsError(f"{tree.source.name} has no profile `{missing[0]}`; it has: {has}")
    return [known[name] for name in names]


def _plan_section(path: pathlib.Path, sink: Sink) -> ast.Parallel | None:
    """The `parallel` section of a plan file; None after reporting what is wrong with it."""
    source = read_source(path, sink)
    return None if source is None else _section(source, sink)


def _section(source: SourceFile, sink: Sink) -> ast.Parallel | None:
    plan = parse_file(source, sink)
    found = next((item for item in plan.items if isinstance(item, ast.Parallel)), None)
    if found is None and not sink.has_errors:
        raise SettingsError(f"{source.name} has no `parallel` section")
    return found


def _is_of_plan(setting: ast.Setting) -> bool:
    return setting.path.parts[0].text == "parallel"


def _without_plan(profile: ast.Profile) -> ast.Profile:
    settings = tuple(s for s in profile.settings if not _is_of_plan(s))
    return ast.Profile(span=profile.span, name=profile.name, settings=settings)


def _settings(
    tree: ast.File,
    dims: Dims,
    profiles: Sequence[ast.Profile],
    changes: Sequence[ast.Setting],
    sink: Sink,
) -> tuple[Settings, Origins]:
    parallel = next((item for item in tree.items if isinstance(item, ast.Parallel)), None)
    train = next((item for item in tree.items if isinstance(item, ast.Train)), None)
    blocks = {item.name.text for item in tree.items if isinstance(item, ast.Block)}
    blocks |= {n.text for item in tree.items if isinstance(item, ast.Import) for n in item.names}
    return resolve(parallel, train, profiles, changes, dims.names, blocks, sink)


# ---- what the runtime gets -----------------------------------------------------------------


def make_plan(compiled: Compiled) -> Plan:
    """Emit the plain module and collect what running it takes."""
    program = compiled.program
    parallel = compiled.settings.parallel
    recompute = parallel.recompute if parallel is not None else ()
    emitted = emit_module(program, recompute=recompute, source_name=compiled.source.name)
    inputs = tuple(_input(program, i, emitted.renamed) for i in range(len(program.forward.params)))
    counted = [name for name, count in program.counts.items() if count.kind == "valid"]
    classes = [c for block in recompute for c in emitted.classes.get(block, ())]
    return Plan(
        model=program.model,
        source=emitted.source,
        source_name=f"{program.model}.py",
        class_name=emitted.class_name,
        inputs=inputs,
        output_names=tuple(value.name for value in program.forward.results),
        parameters=tuple(_parameter(p) for p in iter_parameters(program)),
        num_parameters=count_parameters(program),
        losses=tuple(name for name, _ in program.forward.losses),
        counted=tuple(counted),
        recompute=tuple(classes),
        flops=count_flops(program),
        tokens_per_sample=tokens_per_sample(program),
        decode_source=_decode_source(compiled),
    )


def _decode_source(compiled: Compiled) -> str:
    cached = cached_program(compiled.program)
    if cached is None:
        return ""
    return emit_module(cached, source_name=compiled.source.name, runnable=False).source


def _input(program: Program, position: int, renamed: Mapping[str, str]) -> InputInfo:
    value = program.forward.params[position]
    axes = [program.axes[base_axis(a)] for a in value.type.axes]
    dtype = value.type.dtype
    classes = None if dtype in BUILTIN_DTYPES else program.axes[base_axis(dtype)].extent
    return InputInfo(
        name=value.name,
        axes=value.type.axes,
        sizes=tuple(axis.extent for axis in axes),
        dtype=dtype,
        num_classes=classes,
        seq=tuple(i for i, axis in enumerate(axes) if axis.kind is AxisKind.SEQ),
        loss_only=position in program.forward.loss_only,
        renamed=renamed.get(value.name, ""),
    )


def _parameter(parameter: Parameter) -> ParameterInfo:
    weight = parameter.weight
    decay = len(parameter.shape) >= 2 if weight.decay is None else weight.decay
    return ParameterInfo(parameter.name, parameter.shape, weight.lr, decay, weight.dtype)


def tokens_per_sample(program: Program) -> int:
    """Positions of the longest sequence among the inputs that are indices; 1 without one."""
    sizes = [
        size
        for value in program.forward.params
        if value.type.dtype not in BUILTIN_DTYPES
        for axis in value.type.axes
        if program.axes[base_axis(axis)].kind is AxisKind.SEQ
        and (size := program.axes[base_axis(axis)].extent) is not None
    ]
    return max(sizes, default=1)
