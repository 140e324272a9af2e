"""What is in a safetensors checkpoint, without reading the tensors and without torch.

The format is eight bytes of header length, a JSON header, and the tensors' bytes one after the
other (huggingface/safetensors, "Format"). A header comes from a stranger: every field is checked
before it is used, and what is wrong is a SettingsError that names the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from giantdsl.errors import SettingsError

MAX_HEADER_BYTES = 100_000_000
MAX_INDEX_BYTES = 100_000_000
WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"

ITEM_BYTES: Mapping[str, int] = MappingProxyType(
    {
        "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1,
        "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
        "U32": 4, "I32": 4, "F32": 4,
        "U64": 8, "I64": 8, "F64": 8,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a file: bytes `start` up to `end`, counted from the start of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """One file's tensors by name, and its free-form metadata."""

    tensors: dict[str, StoredTensor]
    metadata: dict[str, str]


def read_header(path: Path) -> Header:
    """Read and check one file's header. Raises SettingsError naming the file."""
    try:
        size_bytes = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(8)
            length = int.from_bytes(head, "little")
            if len(head) < 8 or length > size_bytes - 8:
                raise _bad(path, f"its header says {length} bytes, the file has {size_bytes}")
            if length > MAX_HEADER_BYTES:
                raise _bad(path, f"a header of {length} bytes is too long")
            text = file.read(length)
    except OSError as error:
        raise SettingsError(f"cannot read `{path}`: {error.strerror}") from error
    fields = _json_object(path, text, "header")
    metadata = _metadata(path, fields.pop("__metadata__", {}))
    data = 8 + length
    tensors = {name: _tensor(path, name, value, data) for name, value in fields.items()}
    _check_spans(path, tensors, data, size_bytes)
    return Header(tensors, metadata)


def read_checkpoint(directory: Path) -> dict[str, StoredTensor]:
    """Every tensor of a checkpoint folder: one file, or shards named by an index.

    Raises SettingsError for a folder without safetensors (pickled weights are refused), and for
    an index that disagrees with the files.
    """
    if not directory.is_dir():
        raise SettingsError(f"no folder `{directory}`")
    if (directory / WHOLE).is_file():
        return read_header(directory / WHOLE).tensors
    if (directory / INDEX).is_file():
        return _read_shards(directory)
    pickles = sorted(p.name for p in directory.glob("*.bin")) + sorted(
        p.name for p in directory.glob("*.pt*")
    )
    if pickles:
        raise SettingsError(
            f"`{directory}` has only `{pickles[0]}`, a pickle: loading one can run any code in it; "
            "save the model as safetensors"
        )
    raise SettingsError(f"`{directory}` has neither `{WHOLE}` nor `{INDEX}`")


def _read_shards(directory: Path) -> dict[str, StoredTensor]:
    index = directory / INDEX
    try:
        if index.stat().st_size > MAX_INDEX_BYTES:
            raise _bad(index, "it is too long")
        text = index.read_bytes()
    except OSError as error:
        raise SettingsError(f"cannot read `{index}`: {error.strerror}") from error
    weight_map = _json_object(index, text, "index").get("weight_map")
    if not isinstance(weight_map, dict):
        raise _bad(index, "it has no `weight_map`")
    files: dict[str, dict[str, StoredTensor]] = {}
    tensors: dict[str, StoredTensor] = {}
    for name, file in weight_map.items():
        if not isinstance(file, str) or Path(file).name != file or file in ("", ".", ".."):
            raise _bad(index, f"`{name}` is in {file!r}, which is not a file beside it")
        if file not in files:
            files[file] = read_header(directory / file).tensors
        if name not in files[file]:
            raise _bad(index, f"it places `{name}` in `{file}`, which has no such tensor")
        tensors[name] = files[file][name]
    for file, held in files.items():
        for name in held:
            if weight_map.get(name) != file:
                raise _bad(index, f"it does not list `{name}` of `{file}`")
    return tensors


def _json_object(path: Path, text: bytes, what: str) -> dict[str, object]:
    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, value in pairs:
            if name in found:
                raise _bad(path, f"`{name}` is in its {what} twice")
            found[name] = value
        return found

    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise _bad(path, f"its {what} is not JSON") from error
    if not isinstance(value, dict):
        raise _bad(path, f"its {what} is not a JSON object")
    return value


def _metadata(path: Path, value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise _bad(path, "its metadata is not text")
    return value


def _tensor(path: Path, name: str, value: object, data: int) -> StoredTensor:
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise _bad(path, f"`{name}` is not described by dtype, shape and data_offsets")
    dtype = value["dtype"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise _bad(path, f"`{name}` has the unknown type {dtype!r}")
    shape = _whole_numbers(path, name, value["shape"])
    offsets = _whole_numbers(path, name, value["data_offsets"])
    if len(offsets) != 2:
        raise _bad(path, f"`{name}` has {len(offsets)} offsets, not 2")
    start, end = offsets
    if end - start != math.prod(shape) * ITEM_BYTES[dtype]:
        raise _bad(
            path, f"`{name}` of type {dtype} and shape {list(shape)} cannot be {end - start} bytes"
        )
    return StoredTensor(name, dtype, shape, path, data + start, data + end)


def _whole_numbers(path: Path, name: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > 64:
        raise _bad(path, f"`{name}` has a shape or offsets that are not a short list")
    for item in value:
        if not isinstance(item, int) or isinstance(item, bool) or not 0 <= item < 2**63:
            raise _bad(path, f"`{name}` has a shape or offsets that are not whole numbers")
    return tuple(value)


def _check_spans(path: Path, tensors: dict[str, StoredTensor], data: int, size_bytes: int) -> None:
    """The tensors fill the rest of the file, one after the other."""
    at = data
    for tensor in sorted(tensors.values(), key=lambda t: (t.start, t.end)):
        if tensor.start != at:
            what = "overlaps another tensor" if tensor.start < at else "comes after a gap"
            raise _bad(path, f"`{tensor.name}` {what}")
        at = tensor.end
    if at != size_bytes:
        what = "is cut off" if at > size_bytes else "has bytes that belong to no tensor"
        raise _bad(path, f"it {what}: the tensors end at byte {at}, the file at {size_bytes}")


def _bad(path: Path, why: str) -> SettingsError:
    return SettingsError(f"`{path}` is not a good safetensors file: {why}")
