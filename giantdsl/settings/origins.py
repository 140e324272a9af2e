"""Where the settings in force were written."""

from __future__ import annotations

from dataclasses import dataclass, field

from giantdsl.source import Span


@dataclass(frozen=True, slots=True)
class ShardPlaces:
    """A `shard` line: its axes, mesh axis and `else` axis."""

    axes: tuple[Span, ...]
    mesh_axis: Span
    otherwise: Span | None


@dataclass(slots=True)
class Origins:
    """Places by `section.key`; `values` are the right sides alone. `shard` as in the settings."""

    settings: dict[str, Span] = field(default_factory=dict)
    values: dict[str, Span] = field(default_factory=dict)
    shard: list[ShardPlaces] = field(default_factory=list)

    def setting(self, key: str) -> Span | None:
        """The whole `key = value`, or None where a default is in force."""
        return self.settings.get(key)
