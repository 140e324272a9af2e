"""What a source gives against what a model takes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from giantdsl.errors import SettingsError
from giantdsl.plan import InputInfo


def check_fields(inputs: Sequence[InputInfo], given: Collection[str], source: str) -> None:
    """Raises SettingsError where the model has an input that the data does not provide."""
    wanted = [info.name for info in inputs]
    missing = [name for name in wanted if name not in given]
    if missing:
        raise SettingsError(
            f"`data = {source}` gives {', '.join(sorted(given))}; the model takes "
            f"{', '.join(wanted)}: nothing for {', '.join(f'`{name}`' for name in missing)}"
        )


def input_named(inputs: Sequence[InputInfo], name: str) -> InputInfo | None:
    return next((info for info in inputs if info.name == name), None)


def sequence_length(inputs: Sequence[InputInfo], name: str) -> int:
    """How many positions the input `name` has. Raises SettingsError where it is no sequence."""
    info = input_named(inputs, name)
    if info is None:
        raise SettingsError(f"this data needs a model with an input `{name}`")
    sizes = [info.sizes[i] for i in info.seq]
    if len(sizes) != 1 or sizes[0] is None or info.sizes[0] is not None or len(info.sizes) != 2:
        axes = ", ".join(info.axes)
        raise SettingsError(f"`{name}` is [{axes}]; text needs [batch, sequence]")
    return sizes[0]


def check_ids(inputs: Sequence[InputInfo], name: str, highest: int, what: str) -> None:
    """Raises SettingsError where ids do not fit the axis they index."""
    info = input_named(inputs, name)
    if info is not None and info.num_classes is not None and highest >= info.num_classes:
        raise SettingsError(
            f"{what} has token ids up to {highest:,}, the model's `{info.dtype}` has only "
            f"{info.num_classes:,} entries"
        )
