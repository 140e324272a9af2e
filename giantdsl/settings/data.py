"""Data sources and tokenizers as kinds of settings, made from `data_signatures.py`."""

from __future__ import annotations

from dataclasses import dataclass

from giantdsl.attrs import Attr, Config
from giantdsl.settings import data_signatures
from giantdsl.settings.kinds import (
    As,
    Either,
    Flag,
    Kind,
    ListOf,
    Reading,
    Real,
    Text,
    Whole,
    listed,
    optional,
)
from giantdsl.settings.signatures import Calls, Parameter, Signature

_TEXTS = Either((ListOf(Text(), "a list of strings"), As(Text(), lambda v: (v,))), "file names")
_AUGMENT = optional(
    Calls(
        {
            "flip": Signature("flip", "left and right change places in half of the pictures"),
            "randaugment": Signature(
                "randaugment",
                "random operations of one strength (Cubuk 2020)",
                (
                    Parameter("operations", Whole(1), "how many a picture", 2),
                    Parameter("strength", Whole(0, 30), "0 to 30", 9),
                ),
            ),
        },
        "an augmentation",
    )
)
_KINDS: dict[str, Kind] = {
    "text": Text(),
    "augment": _AUGMENT,
    "texts": _TEXTS,
    "int": Whole(1),
    "number": Real(above=0),
    "share": Real(minimum=0, below=1),
    "bool": Flag(),
    "numbers": ListOf(Real(minimum=0), "a list of numbers"),
}


def _files(value: Attr) -> Config:
    """A bare string or list of strings: token files by their ending, else text."""
    names = value if isinstance(value, tuple) else (value,)
    are_tokens = all(str(name).endswith((".bin", ".idx")) for name in names)
    name = "megatron" if are_tokens else "text"
    signature = next(s for s in data_signatures.SOURCES if s.name == name)
    others = tuple((p.name, p.default) for p in signature.params if p.name != "files")
    return Config(name, (), (("files", names), *others))


@dataclass(frozen=True, slots=True)
class _Source:
    """A data source. A class of its own because sources may hold sources."""

    @property
    def words(self) -> str:
        return f"file names or {listed(s.name for s in data_signatures.SOURCES)}"

    def fits(self, value: Attr) -> bool:
        return True

    def read(self, value: Attr, reading: Reading) -> Attr:
        if isinstance(value, str | tuple):
            return As(_TEXTS, _files).read(value, reading)
        return _SOURCES.read(value, reading)


DATA: Kind = _Source()


def _signature(spec: data_signatures.Signature) -> Signature:
    parameters = tuple(
        Parameter(p.name, _KINDS.get(p.type, DATA), p.doc, p.default, p.required)
        for p in spec.params
    )
    return Signature(spec.name, spec.doc, parameters, DATA if spec.others else None)


_SOURCES = Calls({s.name: _signature(s) for s in data_signatures.SOURCES}, "a data source")
_TOKENIZERS = Calls({s.name: _signature(s) for s in data_signatures.TOKENIZERS}, "a tokenizer")


def _tokenizer(value: Attr) -> Config:
    text = str(value)
    if text.endswith(".json"):
        return Config("file", (), (("path", text),))
    return Config("hf", (), (("name", text),))


TOKENIZER: Kind = Either(
    (As(Text(), _tokenizer), _TOKENIZERS),
    f"a name, a tokenizer.json, or {listed(s.name for s in data_signatures.TOKENIZERS)}",
)
