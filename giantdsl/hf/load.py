"""A checkpoint folder into a plain module, through the spec's `weights` map."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import safe_open
from torch import Tensor, nn

from giantdsl.errors import SettingsError
from giantdsl.hf.spec import MappedSpec, weight_map
from giantdsl.hf.tensors import part_of, unpack
from giantdsl.weights.recipe import Recipe, Transfer, WeightMap
from giantdsl.weights.safetensors_header import StoredTensor, read_checkpoint

FLOATS = ("F16", "BF16", "F32", "F64")

# Buffers that older versions of transformers saved: masks, position numbers, rotary tables. They
# follow from the configuration.
_TABLES = re.compile(
    r"(^|\.)("
    r"h\.\d+\.attn\.(bias|masked_bias)"
    r"|rotary_emb\.inv_freq"
    r"|embeddings\.position_ids"
    r")$"
)
# A second name under which older checkpoints hold a tensor again.
_SECOND_NAMES = {"cls.predictions.decoder.bias": "cls.predictions.bias"}
# TensorFlow's names for a norm's gain and bias, in checkpoints converted from it.
_OLD_LEAVES = (
    ("LayerNorm.weight", "LayerNorm.gamma"),
    ("LayerNorm.bias", "LayerNorm.beta"),
)


def load(module: nn.Module, spec: MappedSpec, directory: str | Path, *, name: str = "hf") -> None:
    """Fill the parameters of a spec's plain module from a checkpoint folder.

    Values are converted to each parameter's dtype. One stored tensor is in memory at a time.
    Raises SettingsError naming what is missing, left over or of the wrong shape, before any
    parameter is changed.
    """
    found = weight_map(spec, name)
    checkpoint = read_checkpoint(Path(directory))
    transfers = match(found, checkpoint, Path(directory))
    parameters = dict(module.named_parameters())
    _check_module(parameters, (transfer for transfer, _ in transfers))
    with Reader() as reader, torch.no_grad():
        _check_left_over(transfers, checkpoint, reader, Path(directory))
        for transfer, stored in transfers:
            parts = unpack(transfer.recipe, reader.read(stored))
            for parameter, part in zip(transfer.parameters, parts, strict=True):
                target = part_of(transfer.recipe, parameters[parameter].data, transfer.at)
                target.copy_(part)


class Reader:
    """Tensors of safetensors files; each file is opened once."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._files: dict[Path, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def read(self, stored: StoredTensor) -> Tensor:
        if stored.file not in self._files:
            opened = safe_open(str(stored.file), framework="pt", device="cpu")
            self._files[stored.file] = self._stack.enter_context(opened)
        tensor: Tensor = self._files[stored.file].get_tensor(stored.name)
        return tensor


def match(
    found: WeightMap, checkpoint: Mapping[str, StoredTensor], directory: Path
) -> list[tuple[Transfer, StoredTensor]]:
    """Each transfer with the tensor it reads. Raises SettingsError for missing or misshapen."""
    transfers = list(found.transfers())
    prefix = _left_out_prefix([t.stored for t in transfers], checkpoint)
    matched: list[tuple[Transfer, StoredTensor]] = []
    missing: list[str] = []
    wrong: list[str] = []
    for transfer in transfers:
        stored = _find(transfer.stored, prefix, checkpoint)
        if stored is None:
            missing.append(transfer.stored)
            continue
        if stored.dtype not in FLOATS:
            wrong.append(f"`{stored.name}` is of type {stored.dtype}, not a float")
        elif not _fits(transfer.recipe, stored.shape):
            wrong.append(_misshapen(transfer, stored))
        matched.append((transfer, stored))
    if missing:
        raise SettingsError(f"`{directory}` has no {_listed(missing)}")
    if wrong:
        more = f" (and {len(wrong) - 1} more like it)" if len(wrong) > 1 else ""
        raise SettingsError(f"`{directory}`: {wrong[0]}{more}")
    return matched


def _left_out_prefix(names: list[str], checkpoint: Mapping[str, StoredTensor]) -> str:
    """`transformer.` for a checkpoint of the bare model, which leaves it out of all names."""
    first = names[0].partition(".")[0] + "." if names else ""
    if not first or any(name.startswith(first) for name in checkpoint):
        return ""
    short = (name[len(first) :] for name in names if name.startswith(first))
    return first if any(name in checkpoint for name in short) else ""


def _find(name: str, prefix: str, checkpoint: Mapping[str, StoredTensor]) -> StoredTensor | None:
    short = name.removeprefix(prefix)
    if short in checkpoint:
        return checkpoint[short]
    for new, old in _OLD_LEAVES:
        if short.endswith(new):
            return checkpoint.get(short.removesuffix(new) + old)
    return None


def _fits(recipe: Recipe, shape: tuple[int, ...]) -> bool:
    if shape in (recipe.stored_shape(), recipe.stored_shape(padded=True)):
        return True
    # A bare parameter may be stored with dimensions of one element around it.
    bare = len(recipe.dims) == len(recipe.axes) and recipe.shape == recipe.sizes
    return bare and _without_ones(shape) == _without_ones(recipe.stored_shape())


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _misshapen(transfer: Transfer, stored: StoredTensor) -> str:
    recipe = transfer.recipe
    whole = list(recipe.stored_shape())
    padded = list(recipe.stored_shape(padded=True))
    wanted = str(whole) if whole == padded else f"{whole}, or padded {padded}"
    return (
        f"`{stored.name}` has shape {list(stored.shape)}, "
        f"`{transfer.parameters[0]}` of the spec needs {wanted}"
    )


def _check_module(parameters: Mapping[str, Tensor], transfers: Iterable[Transfer]) -> None:
    """The module is the spec's own: same names, same shapes, values in memory."""
    left = set(parameters)
    for transfer in transfers:
        for name in transfer.parameters:
            left.discard(name)
            if name not in parameters:
                raise SettingsError(f"the module has no parameter `{name}`, the spec has")
            shape = tuple(parameters[name].shape)
            if shape != transfer.recipe.shape:
                raise SettingsError(
                    f"`{name}` has shape {list(shape)} in the module, "
                    f"{list(transfer.recipe.shape)} in the spec"
                )
            if parameters[name].is_meta:
                raise SettingsError(
                    f"`{name}` has no memory yet; move the module off the meta device first"
                )
    if left:
        raise SettingsError(f"the spec has no parameter {_listed(sorted(left))}, the module has")


def _check_left_over(
    transfers: list[tuple[Transfer, StoredTensor]],
    checkpoint: Mapping[str, StoredTensor],
    reader: Reader,
    directory: Path,
) -> None:
    """Tensors nobody reads are errors, unless they are tables or a tied weight once more."""
    used = {stored.name for _, stored in transfers}
    tied = [stored for transfer, stored in transfers if transfer.is_tied]
    by_name = {stored.name: stored for _, stored in transfers}
    left: list[str] = []
    for name, stored in checkpoint.items():
        if name in used or _TABLES.search(name):
            continue
        second = by_name.get(_SECOND_NAMES.get(name, ""))
        if not any(
            _same_bits(reader, stored, other)
            for other in _like(stored, [*tied, *([second] if second else [])])
        ):
            left.append(name)
    if left:
        raise SettingsError(
            f"`{directory}` has {_listed(left)}, which the spec's map does not place"
        )


def _like(stored: StoredTensor, others: Iterable[StoredTensor]) -> Iterator[StoredTensor]:
    for other in others:
        if (stored.dtype, stored.shape) == (other.dtype, other.shape):
            yield other


def _same_bits(reader: Reader, one: StoredTensor, other: StoredTensor) -> bool:
    first, second = reader.read(one), reader.read(other)
    return torch.equal(first.contiguous().view(torch.uint8), second.contiguous().view(torch.uint8))


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:6])
    return shown + (f" and {len(names) - 6} more" if len(names) > 6 else "")
