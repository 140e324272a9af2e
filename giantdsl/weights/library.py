"""`weights hf from "std/hf/gpt2"`: which map of the library is meant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from giantdsl.diagnostics import Diagnostic, Fix, Label, Sink, nearest
from giantdsl.weights.tree import FileNode, WeightsNode

SUFFIX = ".giant"
SHIPPED = ("std/hf/gpt2",)
"""The maps of our own library, `grammar/std/hf`."""


def sections_of(tree: FileNode) -> list[WeightsNode]:
    """The `weights` sections of a file, in order."""
    return [item for item in tree.items if isinstance(item, WeightsNode)]


def pick_map(weights: WeightsNode, found: Sequence[WeightsNode], sink: Sink) -> WeightsNode | None:
    """The section of a library file that has the wanted name, or None after reporting G506."""
    assert weights.path is not None, "only a section with `from` has a file"
    name = weights.name
    for section in found:
        if section.name.text == name.text and section.entries is not None:
            return section
    known = [section.name.text for section in found if section.entries is not None]
    label = (
        f"has {', '.join(f'`weights {k}`' for k in known)}" if known else "has no checkpoint map"
    )
    near = nearest(name.text, known) or (known[0] if len(known) == 1 else None)
    help_ = f"write `weights {near} from …`" if near else "name a file with a `weights` section"
    sink.add(
        Diagnostic(
            "G506",
            f"`{weights.path.value}` has no `weights {name.text}`",
            Label(weights.path.span, label),
            help_,
            fixes=(Fix(name.span, near),) if near else (),
        )
    )
    return None


def no_map(weights: WeightsNode) -> Diagnostic:
    """G506 for a library file that is not there."""
    assert weights.path is not None, "only a section with `from` has a file"
    written = weights.path.value
    beside = Path(weights.span.source.name).parent
    folder = PurePosixPath(written).parent
    near = nearest(written, [*_maps_in(beside / folder, folder), *SHIPPED])
    shipped = ", ".join(f"`{name}`" for name in SHIPPED)
    return Diagnostic(
        "G506",
        f"no checkpoint map `{written}`",
        Label(weights.path.span, "no such file"),
        f"did you mean `{near}`?" if near else f"looked in `{beside}`; there is also {shipped}",
        fixes=(Fix(weights.path.span, f'"{near}"'),) if near else (),
    )


def _maps_in(directory: Path, shown: PurePosixPath) -> list[str]:
    """Files by the name one writes; the ones beside a spec may be anything, so few are listed."""
    if not directory.is_dir():
        return []
    files = sorted(directory.glob("*" + SUFFIX))[:100]
    return [(shown / path.stem).as_posix() for path in files]
