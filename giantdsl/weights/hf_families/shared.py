"""What several families have in common."""

from __future__ import annotations

from giantdsl.attrs import Attr, Config
from giantdsl.weights.hf_reader import ConfigReader
from giantdsl.weights.spec_text import SpecText

GELU = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}
"""Their activations by our names."""


def set_heads(spec: SpecText, width: int, heads: int, head_dim: int) -> None:
    """`hd = d / heads` stays where it is true."""
    spec.set_dim("d", width)
    spec.set_dim("heads", heads)
    if head_dim * heads != width:
        spec.set_dim("hd", head_dim)


def check_divides(config: ConfigReader, key: str, width: int, heads: int) -> None:
    if width % heads:
        raise config.wrong(key, heads, f"a divisor of the width, {width}")


def padded_vocab(size: int, multiple: int) -> str | int:
    """A vocabulary as a spec writes it: padded where its size divides by nothing useful."""
    return size if size % multiple == 0 else f"pad({size}, {multiple})"


def set_rope(config: ConfigReader, spec: SpecText, default_theta: float) -> None:
    """`rope_parameters` of transformers 5, or `rope_theta` and `rope_scaling` of 4."""
    theta = config.number("rope_theta", default_theta)
    old = config.section("rope_scaling")
    new = config.section("rope_parameters")
    scaling: Config | None = None
    for section in (old, new):
        if section is None:
            continue
        theta = section.number("rope_theta", theta)
        section.must("partial_rotary_factor", 1)
        scaling = _scaling(config, section)
        section.finish()
    args: list[tuple[str, Attr]] = [("theta", short(theta))]
    if scaling is not None:
        args.append(("scaling", scaling))
    line = str(Config("rope", (), tuple(args)))
    spec.drop_line("default rope(")
    spec.replace("\ndefault rmsnorm(", f"\ndefault {line}\ndefault rmsnorm(")


def _scaling(config: ConfigReader, section: ConfigReader) -> Config | None:
    known = ("default", "linear", "llama3")
    old_name = section.word("type", "default", known)
    kind = section.word("rope_type", old_name, known)
    if kind == "default":
        section.ignore("original_max_position_embeddings")
        return None
    factor = short(section.number("factor"))
    if kind == "linear":
        section.ignore("original_max_position_embeddings")
        return Config("linear", (), (("factor", factor),))
    args: tuple[tuple[str, Attr], ...] = (
        ("factor", factor),
        ("low", short(section.number("low_freq_factor"))),
        ("high", short(section.number("high_freq_factor"))),
        ("context", section.whole("original_max_position_embeddings")),
    )
    return Config("llama3", (), args)


def short(value: float) -> int | float:
    """A number as one writes it: 8, not 8.0."""
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
