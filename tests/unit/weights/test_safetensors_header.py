"""Headers are checked field by field: a file comes from a stranger."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from giantdsl.errors import SettingsError
from giantdsl.weights.safetensors_header import read_checkpoint, read_header


def write(path: Path, header: object, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def entry(start: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def test_reads_what_is_there(tmp_path: Path) -> None:
    header = {
        "b": entry(16, 20, [2], "BF16"),
        "a": entry(0, 16, [2, 2]),
        "empty": entry(20, 20, [0, 3]),
        "__metadata__": {"format": "pt"},
    }
    path = write(tmp_path / "x.safetensors", header, bytes(20))
    found = read_header(path)
    data = path.stat().st_size - 20
    assert found.metadata == {"format": "pt"}
    a = found.tensors["a"]
    assert (a.dtype, a.shape, a.start, a.end) == ("F32", (2, 2), data, data + 16)
    assert found.tensors["b"].shape == (2,)
    assert found.tensors["empty"].shape == (0, 3)


GOOD = entry(0, 16, [2, 2])


@pytest.mark.parametrize(
    ("header", "data", "why"),
    [
        (b"{", 0, "not JSON"),
        (b"[" * 100_000, 0, "not JSON"),
        (b"\xff\xfe", 0, "not JSON"),
        (b"[1]", 0, "not a JSON object"),
        (b'{"a": 1, "a": 2}', 0, "twice"),
        (b'{"a": {"dtype": "F32", "shape": [9' + b"9" * 5000 + b'], "data_offsets": [0, 4]}}', 4,
         "not JSON"),
        ({"a": 3}, 0, "not described by"),
        ({"a": {**GOOD, "more": 1}}, 16, "not described by"),
        ({"a": {**GOOD, "dtype": "F31"}}, 16, "unknown type 'F31'"),
        ({"a": {**GOOD, "dtype": ["F32"]}}, 16, "unknown type"),
        ({"a": {**GOOD, "shape": "22"}}, 16, "not a short list"),
        ({"a": {**GOOD, "shape": [2.0, 2]}}, 16, "not whole numbers"),
        ({"a": {**GOOD, "shape": [True, 4]}}, 16, "not whole numbers"),
        ({"a": {**GOOD, "shape": [-2, -2]}}, 16, "not whole numbers"),
        ({"a": {**GOOD, "shape": [1] * 65}}, 16, "not a short list"),
        ({"a": {**GOOD, "data_offsets": [0]}}, 16, "1 offsets, not 2"),
        ({"a": {**GOOD, "data_offsets": [16, 0]}}, 16, "cannot be -16 bytes"),
        ({"a": {**GOOD, "shape": [2**40, 2**40]}}, 16, "cannot be 16 bytes"),
        ({"a": GOOD}, 12, "cut off"),
        ({"a": GOOD}, 20, "bytes that belong to no tensor"),
        ({"a": GOOD, "b": entry(8, 24, [4])}, 24, "overlaps"),
        ({"a": GOOD, "b": entry(20, 24, [1])}, 24, "gap"),
        ({"__metadata__": {"format": 1}}, 0, "metadata is not text"),
        ({"__metadata__": "pt"}, 0, "metadata is not text"),
    ],
)  # fmt: skip
def test_bad_headers_are_refused(tmp_path: Path, header: object, data: int, why: str) -> None:
    path = write(tmp_path / "x.safetensors", header, bytes(data))
    with pytest.raises(SettingsError) as caught:
        read_header(path)
    assert why in str(caught.value)
    assert "x.safetensors" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_lengths_that_lie(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"1234")
    with pytest.raises(SettingsError, match="the file has 4"):
        read_header(path)
    path.write_bytes(struct.pack("<Q", 2**63) + b"{}")
    with pytest.raises(SettingsError, match="the file has 10"):
        read_header(path)
    with pytest.raises(SettingsError, match="cannot read"):
        read_header(tmp_path / "nothing.safetensors")


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 200), byte=st.integers(0, 255), cut=st.integers(0, 60))
def test_any_damage_is_read_or_refused(tmp_path: Path, at: int, byte: int, cut: int) -> None:
    path = write(tmp_path / "x.safetensors", {"a": GOOD, "b": entry(16, 20, [1])}, bytes(20))
    damaged = bytearray(path.read_bytes())
    damaged[at % len(damaged)] = byte
    path.write_bytes(bytes(damaged[: len(damaged) - cut]))
    try:
        assert all(t.end <= path.stat().st_size for t in read_header(path).tensors.values())
    except SettingsError as error:
        assert "x.safetensors" in str(error)


def shards(folder: Path, weight_map: dict[str, object]) -> None:
    write(folder / "one.safetensors", {"a": GOOD}, bytes(16))
    write(folder / "two.safetensors", {"b": GOOD}, bytes(16))
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))


def test_shards(tmp_path: Path) -> None:
    shards(tmp_path, {"a": "one.safetensors", "b": "two.safetensors"})
    found = read_checkpoint(tmp_path)
    assert {name: t.file.name for name, t in found.items()} == {
        "a": "one.safetensors",
        "b": "two.safetensors",
    }


@pytest.mark.parametrize(
    ("weight_map", "why"),
    [
        ({"a": "../one.safetensors", "b": "two.safetensors"}, "not a file beside it"),
        ({"a": "/etc/passwd"}, "not a file beside it"),
        ({"a": ".."}, "not a file beside it"),
        ({"a": 1}, "not a file beside it"),
        ({"a": "two.safetensors"}, "has no such tensor"),
        ({"a": "three.safetensors"}, "cannot read"),
        ({"a": "one.safetensors", "c": "two.safetensors"}, "has no such tensor"),
    ],
)
def test_an_index_that_disagrees_is_refused(
    tmp_path: Path, weight_map: dict[str, object], why: str
) -> None:
    shards(tmp_path, weight_map)
    with pytest.raises(SettingsError, match=why):
        read_checkpoint(tmp_path)


def test_a_tensor_the_index_leaves_out_is_named(tmp_path: Path) -> None:
    write(tmp_path / "one.safetensors", {"a": GOOD, "z": entry(16, 20, [1])}, bytes(20))
    (tmp_path / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "one.safetensors"}}'
    )
    with pytest.raises(SettingsError, match="does not list `z`"):
        read_checkpoint(tmp_path)


def test_pickles_are_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02")
    with pytest.raises(SettingsError, match="a pickle: loading one can run any code"):
        read_checkpoint(tmp_path)


def test_empty_and_missing_folders(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="neither"):
        read_checkpoint(tmp_path)
    with pytest.raises(SettingsError, match="no folder"):
        read_checkpoint(tmp_path / "nothing")
