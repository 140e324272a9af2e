"""What a setting may be: kinds of values, each of which reads a value or says what is wrong.

A kind knows nothing of the file: a fault carries a path into the value, and whoever holds the
tree turns it into a place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from giantdsl.attrs import Attr, Config, format_attr
from giantdsl.diagnostics.suggest import did_you_mean

Path = tuple[str | int, ...]
"""Into a value: a str is an argument of a call, an int a position in a list."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a value. `label` stands beside the carets under the part at `path`.

    `name_only`: the carets go under the name of the call or argument, not under all of it.
    """

    code: str
    message: str
    label: str
    help: str | None
    path: Path
    name_only: bool = False


@dataclass(slots=True)
class Reading:
    """One value being read: how messages call it, where in it we are, what was found wrong."""

    what: str
    path: Path = ()
    faults: list[Fault] = field(default_factory=list)

    def inside(self, what: str, step: str | int) -> Reading:
        """The part of this value at `step`; faults go to the same list."""
        return Reading(what, (*self.path, step), self.faults)

    def fault(
        self, code: str, message: str, label: str, help: str | None = None, name_only: bool = False
    ) -> None:
        self.faults.append(Fault(code, message, label, help, self.path, name_only))

    def wrong(self, kind: Kind, value: Attr) -> None:
        """G603: this value is not of that kind."""
        message = f"{self.what} is {kind.words}"
        self.fault("G603", message, f"this is {format_attr(value)}")


class Kind(Protocol):
    """A kind of value. `words` finishes the sentence "`train.batch` is …"."""

    @property
    def words(self) -> str: ...

    def fits(self, value: Attr) -> bool:
        """Whether a value has the outer shape of this kind, to choose among several."""
        ...

    def read(self, value: Attr, reading: Reading) -> Attr:
        """The value as settings hold it; what it is worth after a fault does not matter."""
        ...


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number in a range; `3.0` counts as one."""

    minimum: int = 0
    maximum: int | None = None

    @property
    def words(self) -> str:
        if self.maximum is not None:
            return f"a whole number from {self.minimum} to {self.maximum}"
        return f"a whole number of at least {self.minimum}"

    def fits(self, value: Attr) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    def read(self, value: Attr, reading: Reading) -> Attr:
        whole = _as_whole(value)
        above = self.maximum is not None and whole is not None and whole > self.maximum
        if whole is None or whole < self.minimum or above:
            reading.wrong(self, value)
        return whole


def _as_whole(value: Attr) -> int | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class Real:
    """A number in a range; the ends belong to it unless `above` or `below` says otherwise."""

    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None

    @property
    def words(self) -> str:
        low = f"at least {self.minimum:g}" if self.minimum is not None else ""
        low = f"above {self.above:g}" if self.above is not None else low
        high = f"at most {self.maximum:g}" if self.maximum is not None else ""
        high = f"below {self.below:g}" if self.below is not None else high
        return " ".join(["a number", *filter(None, [" and ".join(filter(None, [low, high]))])])

    def fits(self, value: Attr) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    def read(self, value: Attr, reading: Reading) -> Attr:
        if isinstance(value, bool) or not isinstance(value, int | float) or not self._holds(value):
            reading.wrong(self, value)
            return value
        return float(value)

    def _holds(self, value: int | float) -> bool:
        return (
            math.isfinite(value)
            and (self.minimum is None or value >= self.minimum)
            and (self.maximum is None or value <= self.maximum)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )


@dataclass(frozen=True, slots=True)
class Flag:
    """`true` or `false`."""

    @property
    def words(self) -> str:
        return "true or false"

    def fits(self, value: Attr) -> bool:
        return isinstance(value, bool)

    def read(self, value: Attr, reading: Reading) -> Attr:
        if not isinstance(value, bool):
            reading.wrong(self, value)
        return value


@dataclass(frozen=True, slots=True)
class Text:
    """A string that is not empty."""

    what: str = "a string"

    @property
    def words(self) -> str:
        return self.what

    def fits(self, value: Attr) -> bool:
        return isinstance(value, str)

    def read(self, value: Attr, reading: Reading) -> Attr:
        if not isinstance(value, str) or not value:
            reading.wrong(self, value)
        return value


@dataclass(frozen=True, slots=True)
class Word:
    """One of some words, kept as a string. `meaning` says what a word stands for, if not itself."""

    options: tuple[str, ...]
    meaning: Mapping[str, Attr] = field(default_factory=dict)

    @property
    def words(self) -> str:
        return listed(self.options)

    def fits(self, value: Attr) -> bool:
        return _is_bare(value)

    def read(self, value: Attr, reading: Reading) -> Attr:
        name = value.name if isinstance(value, Config) and _is_bare(value) else None
        if name is None:
            reading.wrong(self, value)
            return value
        if name not in self.options:
            message = f"{reading.what} is {self.words}"
            help = did_you_mean(name, self.options)
            reading.fault("G603", message, f"this is {name}", help)
        return self.meaning.get(name, name)


@dataclass(frozen=True, slots=True)
class Named:
    """Any name, with or without quotes: `tok`, `"decoder.0.*"`. Kept as a string."""

    what: str = "a name"

    @property
    def words(self) -> str:
        return self.what

    def fits(self, value: Attr) -> bool:
        return _is_bare(value) or isinstance(value, str)

    def read(self, value: Attr, reading: Reading) -> Attr:
        if isinstance(value, Config) and _is_bare(value):
            return value.name
        if not isinstance(value, str) or not value:
            reading.wrong(self, value)
        return value


def _is_bare(value: Attr) -> bool:
    return isinstance(value, Config) and not value.args and not value.kwargs


@dataclass(frozen=True, slots=True)
class Nothing:
    """`none`."""

    @property
    def words(self) -> str:
        return "none"

    def fits(self, value: Attr) -> bool:
        return value is None

    def read(self, value: Attr, reading: Reading) -> Attr:
        if value is not None:
            reading.wrong(self, value)
        return None


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list, kept as a tuple. `length` fixes how many items it has; `what` names them all."""

    item: Kind
    what: str
    length: int | None = None
    distinct: bool = False

    @property
    def words(self) -> str:
        return self.what

    def fits(self, value: Attr) -> bool:
        return isinstance(value, tuple)

    def read(self, value: Attr, reading: Reading) -> Attr:
        if not isinstance(value, tuple) or self.length not in (None, len(value)):
            reading.wrong(self, value)
            return value
        items = [
            self.item.read(item, reading.inside(f"an item of {reading.what}", i))
            for i, item in enumerate(value)
        ]
        if self.distinct:
            for i, item in enumerate(items):
                if item in items[:i]:
                    shown = format_attr(value[i])
                    again = reading.inside(reading.what, i)
                    again.fault("G603", f"{reading.what} names {shown} twice", f"{shown} again")
        return tuple(items)


@dataclass(frozen=True, slots=True)
class Either:
    """The first kind whose outer shape fits. `what` describes all of them together."""

    kinds: tuple[Kind, ...]
    what: str

    @property
    def words(self) -> str:
        return self.what

    def fits(self, value: Attr) -> bool:
        return any(kind.fits(value) for kind in self.kinds)

    def read(self, value: Attr, reading: Reading) -> Attr:
        for kind in self.kinds:
            if kind.fits(value):
                return kind.read(value, reading)
        reading.wrong(self, value)
        return value


def optional(kind: Kind) -> Either:
    """That kind, or `none`."""
    return Either((Nothing(), kind), f"{kind.words}, or none")


@dataclass(frozen=True, slots=True)
class As:
    """A shorthand: a value of `kind` that `make` turns into what settings hold."""

    kind: Kind
    make: Callable[[Attr], Attr]

    @property
    def words(self) -> str:
        return self.kind.words

    def fits(self, value: Attr) -> bool:
        return self.kind.fits(value)

    def read(self, value: Attr, reading: Reading) -> Attr:
        count = len(reading.faults)
        good = self.kind.read(value, reading)
        return self.make(good) if len(reading.faults) == count else value


def listed(names: Iterable[str], last: str = "or") -> str:
    """`a, b or c`."""
    *head, tail = names
    return f"{', '.join(head)} {last} {tail}" if head else tail
