"""What a backend can do on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """`why_not` is None where the backend can be used. `library` is there where it is built already,
    `failed` where a build of it failed: the log."""

    name: str
    devices: tuple[str, ...]
    why_not: str | None
    compiler: Path | None = None
    library: Path | None = None
    failed: Path | None = None

    @property
    def is_usable(self) -> bool:
        return self.why_not is None
