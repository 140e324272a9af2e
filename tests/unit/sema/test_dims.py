"""Sizes: kinds, sums and products, padding, overrides."""

from __future__ import annotations

import pytest

from giantdsl.ir.parameters import count_parameters, iter_parameters
from giantdsl.ir.types import Axis, AxisKind

from .helpers import MODELS, codes, diagnose, forward, program_of

COUNTS = {
    "alternating": 2_614_341_888,
    "bert": 110_106_428,
    "custom": 66_746_368,
    "gpt2": 124_439_808,
    "llama3": 8_030_261_248,
    "mixtral": 46_702_792_704,
    "t5": 60_506_624,
    "vit": 86_567_656,
}


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_published_parameter_counts(path: object) -> None:
    program = program_of(path.read_text(encoding="utf-8"))  # type: ignore[attr-defined]
    counted = count_parameters(program)
    if program.model in COUNTS:
        assert counted == COUNTS[program.model]
    shapes = [parameter.shape for parameter in iter_parameters(program)]
    assert counted == sum(_product(shape) for shape in shapes)


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def test_all_published_models_are_here() -> None:
    assert {path.stem for path in MODELS} >= COUNTS.keys()


def axes(dims: str, **overrides: str) -> dict[str, Axis]:
    base = f"b: batch\ns: seq = 16\nd = 32\nvocab = 61\n{dims}"
    text = forward("return x", dims=f"dims {{\n{base}\n}}")
    return program_of(text.replace(", keep[b, s]: bool", ""), overrides=overrides).axes


def fails(dims: str, **overrides: str) -> list[str]:
    base = f"b: batch\ns: seq = 16\nd = 32\nvocab = 61\n{dims}"
    return codes(forward("return x", dims=f"dims {{\n{base}\n}}"), overrides=overrides)


def test_kinds() -> None:
    found = axes("slot: ragged\nroom: ragged = 40")
    assert [found[a].kind.value for a in ("b", "s", "d", "slot")] == [
        "batch", "seq", "feature", "ragged",
    ]  # fmt: skip
    assert (found["b"].size, found["slot"].size, found["room"].size) == (None, None, 40)


def test_padding_is_memory_only() -> None:
    found = axes("wide = pad(50257, 128)\neven = pad(256, 128)")
    assert (found["wide"].size, found["wide"].logical, found["wide"].extent) == (
        50304,
        50257,
        50257,
    )
    assert (found["even"].size, found["even"].logical) == (256, None)


def test_padded_rows_are_in_no_shape() -> None:
    text = forward("return x", dims="dims { b: batch; s: seq = 4; d = 8; vocab = pad(61, 8) }")
    program = program_of(text)
    assert [p.shape for p in iter_parameters(program)] == [(61, 8)]
    assert count_parameters(program) == 61 * 8


def test_products_know_their_factors() -> None:
    found = axes("ny = 3\npy = 4\nh = ny * py\nw = h * 2\ndeep = h * d\nsquare = ny * ny")
    assert found["h"].factors == ("ny", "py")
    assert found["w"].factors == ()
    assert found["deep"].factors == ("ny", "py", "d")
    assert found["square"].factors == ()


def test_sums_know_their_terms() -> None:
    found = axes("one: seq = 1\nboth: seq = one + s\nthree: seq = both + one\nmore: seq = s + 1")
    assert found["both"].terms == ("one", "s")
    assert found["three"].terms == ("one", "s", "one")
    assert found["more"].terms == ()
    assert found["both"].size == 17


def test_numbers_that_are_no_axes() -> None:
    text = forward(
        "return x * scale + none_at_all",
        dims="dims { b: batch; s: seq = 4; d = 8; vocab = 9\n"
        "scale = 1 / sqrt(d); none_at_all = 0; ratio = 2.5; wide = ratio * d; part = 0.3 * d }",
    )
    program = program_of(text)
    assert program.scalars["scale"] == pytest.approx(8**-0.5)
    assert program.axes["wide"].size == 20
    assert program.scalars["part"] == pytest.approx(2.4)
    assert "none_at_all" not in program.axes


def test_overrides() -> None:
    assert axes("", d="64")["d"].size == 64
    assert axes("ff = 4 * d", d="64")["ff"].size == 256
    assert axes("", vocab="pad(61, 8)")["vocab"].extent == 61
    assert axes("", vocab="pad(61, 8)")["vocab"].size == 64
    assert axes("ff = 4 * d", d="2 * 8")["ff"].size == 64


def test_derived_sizes_cannot_be_overridden() -> None:
    assert fails("ff = 4 * d", ff="8") == ["G601"]
    [fault] = diagnose(forward("return x"), overrides={"hd": "8"})
    assert fault.help == "set what it is derived from: `hd = d / heads`"


def test_unknown_sizes_cannot_be_overridden() -> None:
    [fault] = diagnose(forward("return x"), overrides={"laiers": "8"})
    assert (fault.code, fault.help) == ("G601", "did you mean `dims.layers`?")


def test_an_override_is_checked_like_a_size() -> None:
    assert set(fails("", d="0")) == {"G101"}
    assert fails("", s="2.5") == ["G205"]
    assert fails("ff = d / 3", d="31") == ["G205"]


@pytest.mark.parametrize(
    ("dims", "code"),
    [
        ("x1 = d / 7", "G205"),
        ("x1: seq", "G205"),
        ("x1", "G205"),
        ("x1: batch = 3", "G205"),
        ("x1: seq = -3", "G205"),
        ("x1 = 2 ** 60", "G205"),
        ("x1 = y1", "G102"),
        ("x1: kind = 3", "G101"),
        ("x1 = 3\nx1 = 4", "G105"),
        ("x1 = 1 / 0", "G203"),
        ("x1 = 10 ** 400", "G203"),
        ("x1 = d + true", "G203"),
        ("x1 = gelu(d)", "G103"),
        ("x1 = pad(5)", "G207"),
        ("x1 = pad(5, 0)", "G203"),
        ("x1 = d[s=0]", "G213"),
    ],
)
def test_wrong_sizes(dims: str, code: str) -> None:
    assert fails(dims) == [code]


def test_a_size_that_failed_is_reported_once() -> None:
    assert fails("x1 = d / 7\nx2 = 4 * x1\nx3 = x2 + x1") == ["G205"]


def test_doubling_chains_stay_small() -> None:
    lines = "\n".join(f"a{i + 1}: feature = a{i} * a{i}" for i in range(60))
    found = axes(f"a0: feature = 1\n{lines}")
    assert len(found["a60"].factors) <= 256
    sums = "\n".join(f"a{i + 1}: seq = a{i} + a{i}" for i in range(40))
    assert len(axes(f"a0: seq = 1\n{sums}")["a40"].terms) <= 256


def test_axis_kinds_are_all_tested() -> None:
    assert {kind.value for kind in AxisKind} == {"batch", "seq", "feature", "ragged"}
