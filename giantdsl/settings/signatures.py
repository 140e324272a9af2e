"""Calls as values: `adamw(decay=0.1)` checked against a signature and filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from giantdsl.attrs import Attr, Config
from giantdsl.diagnostics.suggest import did_you_mean
from giantdsl.settings.kinds import Kind, Reading, listed


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of a call. Without `required`, `default` is its value when it is not given."""

    name: str
    kind: Kind
    doc: str
    default: Attr = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes, by position in this order or by name.

    `others`: arguments of any other name are legal and of this kind (the parts of `blend`).
    `check` looks at the filled arguments together and faults what does not fit.
    """

    name: str
    doc: str
    parameters: tuple[Parameter, ...] = ()
    others: Kind | None = None
    check: Callable[[Mapping[str, Attr], Reading], None] | None = None

    def parameter(self, name: str) -> Parameter | None:
        return next((p for p in self.parameters if p.name == name), None)

    def __str__(self) -> str:
        parts = [p.name if p.required else f"{p.name}=" for p in self.parameters]
        parts += ["NAME="] if self.others is not None else []
        return f"{self.name}({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class Calls:
    """A call of one of some functions, kept as a Config whose kwargs are complete."""

    signatures: Mapping[str, Signature]
    what: str

    @property
    def words(self) -> str:
        return f"{self.what}: {listed(self.signatures)}"

    def fits(self, value: Attr) -> bool:
        return isinstance(value, Config)

    def read(self, value: Attr, reading: Reading) -> Attr:
        if not isinstance(value, Config):
            reading.wrong(self, value)
            return value
        signature = self.signatures.get(value.name)
        if signature is None:
            known = f"known: {', '.join(self.signatures)}"
            help = did_you_mean(value.name, self.signatures, known)
            message = f"no {self.noun} `{value.name}`"
            reading.fault("G602", message, f"not {self.what}", help, name_only=True)
            return value
        return fill(value, signature, reading)

    @property
    def noun(self) -> str:
        """`what` without its article."""
        return self.what.split(" ", 1)[1]


def fill(call: Config, signature: Signature, reading: Reading) -> Attr:
    """The call with every argument by name, defaults filled in, each checked."""
    count = len(reading.faults)
    given = _given(call, signature, reading)
    kwargs: dict[str, Attr] = {}
    for parameter in signature.parameters:
        step = given.pop(parameter.name, None)
        if step is not None:
            inner = reading.inside(f"`{parameter.name}` of `{signature.name}`", step[0])
            kwargs[parameter.name] = parameter.kind.read(step[1], inner)
        elif parameter.required:
            message = f"`{signature.name}` needs `{parameter.name}`"
            reading.fault("G604", message, "not given", f"add {parameter.name}=…")
        else:
            kwargs[parameter.name] = parameter.default
    if signature.others is not None:
        for name, (at, value) in given.items():
            inner = reading.inside(f"`{name}` of `{signature.name}`", at)
            kwargs[name] = signature.others.read(value, inner)
    if signature.check is not None and len(reading.faults) == count:
        signature.check(kwargs, reading)
    return Config(call.name, (), tuple(kwargs.items()))


def _given(
    call: Config, signature: Signature, reading: Reading
) -> dict[str, tuple[str | int, Attr]]:
    """Arguments by name with the step that leads to them; faults what the signature lacks."""
    names = [p.name for p in signature.parameters]
    given: dict[str, tuple[str | int, Attr]] = {}
    for position, value in enumerate(call.args):
        if position >= len(names):
            inner = reading.inside("", position)
            takes = f"it takes: {', '.join(names)}" if names else "it takes none"
            inner.fault("G604", f"too many arguments for `{call.name}`", "one too many", takes)
            break
        given[names[position]] = (position, value)
    for name, value in call.kwargs:
        inner = reading.inside("", name)
        if name in given:
            inner.fault("G604", f"`{name}` of `{call.name}` is given twice", "again here")
        elif name not in names and signature.others is None:
            takes = f"it takes: {', '.join(names)}" if names else "it takes no arguments"
            help = did_you_mean(name, names, takes)
            message = f"`{call.name}` has no argument `{name}`"
            inner.fault("G604", message, "unknown argument", help, name_only=True)
        else:
            given[name] = (name, value)
    return given
