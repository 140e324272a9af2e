"""A plain module's parameters as a checkpoint folder, under the names of a `weights` map."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from giantdsl.errors import SettingsError
from giantdsl.hf.spec import MappedSpec, weight_map
from giantdsl.hf.tensors import pack, part_of
from giantdsl.weights.hf_export import export_config
from giantdsl.weights.recipe import Transfer
from giantdsl.weights.safetensors_header import INDEX, WHOLE, read_header

SHARD_BYTES = 5 * 10**9


def save(
    module: nn.Module,
    spec: MappedSpec,
    directory: str | Path,
    *,
    name: str = "hf",
    dtype: torch.dtype | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write the parameters of a spec's plain module as safetensors, with `config.json` if known.

    Each tensor keeps its parameter's dtype unless `dtype` is given. More than `shard_bytes`
    become several files and an index. Loading what was saved gives the same bits.
    """
    save_parameters(
        dict(module.named_parameters()),
        spec,
        directory,
        name=name,
        dtype=dtype,
        shard_bytes=shard_bytes,
    )


def save_parameters(
    parameters: Mapping[str, Tensor],
    spec: MappedSpec,
    directory: str | Path,
    *,
    name: str = "hf",
    dtype: torch.dtype | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """As `save`, from parameters by logical name."""
    transfers = list(weight_map(spec, name).transfers())
    _check(parameters, transfers)
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    shards = list(_shards(parameters, transfers, dtype, shard_bytes))
    names = _file_names(len(shards))
    placed: dict[str, str] = {}
    total = 0
    for file, shard in zip(names, shards, strict=True):
        tensors = {t.stored: _packed(parameters, t, dtype) for t in shard}
        _write_tensors(folder / file, tensors)
        placed.update((key, file) for key in tensors)
        total += sum(tensor.nbytes for tensor in tensors.values())
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": placed}
        _write_text(folder / INDEX, json.dumps(index, indent=2) + "\n")
    _clear(folder, {*names, *((INDEX,) if len(shards) > 1 else ())})
    program = getattr(spec, "compiled", spec).program
    config = export_config(program, [transfer.stored for transfer in transfers])
    if config is not None:
        first = parameters[transfers[0].parameters[0]].dtype if dtype is None else dtype
        config["torch_dtype"] = str(first).removeprefix("torch.")
        _write_text(folder / "config.json", json.dumps(config, indent=2, sort_keys=True) + "\n")


def export(
    spec: MappedSpec,
    weights: str | Path,
    directory: str | Path,
    *,
    name: str = "hf",
    dtype: torch.dtype | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """As `save`, from a safetensors file that a run or `convert --weights` wrote.

    `weights` is the file, or a folder that holds one or more of them; names in it are the
    spec's. Raises SettingsError when there is none.
    """
    path = Path(weights)
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise SettingsError(f"no safetensors file at `{path}`")
    parameters: dict[str, Tensor] = {}
    for file in files:
        read_header(file)
        parameters |= load_file(str(file))
    save_parameters(parameters, spec, directory, name=name, dtype=dtype, shard_bytes=shard_bytes)


def _check(parameters: Mapping[str, Tensor], transfers: list[Transfer]) -> None:
    for transfer in transfers:
        for name in transfer.parameters:
            if name not in parameters:
                raise SettingsError(f"there is no parameter `{name}`, the spec has one")
            shape = tuple(parameters[name].shape)
            if shape != transfer.recipe.shape:
                raise SettingsError(
                    f"`{name}` has shape {list(shape)}, {list(transfer.recipe.shape)} in the spec"
                )


def _clear(folder: Path, written: set[str]) -> None:
    """Take away what an earlier save left, so that old shards do not stay beside new ones."""
    for path in [folder / WHOLE, folder / INDEX, *folder.glob("model-*-of-*.safetensors")]:
        if path.name not in written:
            path.unlink(missing_ok=True)


def _packed(
    parameters: Mapping[str, Tensor], transfer: Transfer, dtype: torch.dtype | None
) -> Tensor:
    parts = [
        part_of(transfer.recipe, parameters[name].detach().contiguous(), transfer.at)
        for name in transfer.parameters
    ]
    stored = pack(transfer.recipe, parts).cpu()
    if dtype is not None:
        stored = stored.to(dtype)
    # A tensor that is a view of a parameter would make two stored tensors share memory.
    return stored.clone() if any(_shares(stored, part) for part in parts) else stored


def _shares(one: Tensor, other: Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _shards(
    parameters: Mapping[str, Tensor],
    transfers: list[Transfer],
    dtype: torch.dtype | None,
    shard_bytes: int,
) -> Iterator[list[Transfer]]:
    """Transfers in order, cut so that no file is larger than `shard_bytes` if it can be helped."""
    shard: list[Transfer] = []
    filled = 0
    for transfer in transfers:
        item = (dtype or parameters[transfer.parameters[0]].dtype).itemsize
        size = item
        for extent in transfer.recipe.stored_shape():
            size *= extent
        if shard and filled + size > shard_bytes:
            yield shard
            shard, filled = [], 0
        shard.append(transfer)
        filled += size
    if shard:
        yield shard


def _file_names(count: int) -> list[str]:
    if count == 1:
        return [WHOLE]
    return [f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]


def _write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    part = path.with_name(path.name + ".part")
    save_file(tensors, str(part), metadata={"format": "pt"})
    os.replace(part, path)


def _write_text(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
