"""Sources that are no text: made up, blended, pictures, and any torch Dataset."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from giantdsl.errors import SettingsError
from giantdsl.plan import InputInfo
from giantdsl.train.data.fields import check_fields
from giantdsl.train.data.order import Ints, generator
from giantdsl.train.data.source import BaseSource
from giantdsl.train.data_protocol import Source, Tokenizer


class SyntheticSource(BaseSource):
    """Random samples of any model's inputs, with something in them to learn.

    Along a sequence each index follows from the one before it; where `labels` pairs with
    `tokens` it is the next one; an index without a sequence follows from the sample's number.
    Floats are normal, flags are true.
    """

    def __init__(
        self, inputs: Sequence[InputInfo], samples: int, *, seed: int, shuffled: bool
    ) -> None:
        self._inputs, self._data_seed = tuple(inputs), seed
        identity = f"synthetic|{[(i.name, i.sizes, i.dtype) for i in inputs]}"
        super().__init__(samples, seed=seed, shuffled=shuffled, identity=identity)

    def samples(self, positions: Ints, epochs: Ints) -> Mapping[str, Tensor]:
        found = {}
        for info in self._inputs:
            rows = [self._made(info, int(position)) for position in positions]
            has_batch = any(size is None for size in info.sizes)
            found[info.name] = torch.from_numpy(np.stack(rows) if has_batch else rows[0])
        return found

    def _made(self, info: InputInfo, position: int) -> Any:
        sizes = [size for size in info.sizes if size is not None]
        draw = generator(self._data_seed, position)
        if info.dtype == "float":
            return draw.standard_normal(sizes).astype(np.float32)
        if info.dtype == "bool":
            return np.ones(sizes, dtype=bool)
        if info.num_classes is None:
            return np.zeros(sizes, dtype=np.int64)
        if not info.seq:
            return np.full(sizes, position % info.num_classes, dtype=np.int64)
        start, step = int(draw.integers(info.num_classes)), 1 + position % 3
        along = np.arange(sizes[-1] if sizes else 1) + (info.name == "labels")
        row = (start + step * along) % info.num_classes
        return np.broadcast_to(row, sizes).astype(np.int64).copy()


class BlendSource:
    """Several sources in fixed proportions, mixed evenly in blocks."""

    _BLOCK = 1000

    def __init__(self, parts: Mapping[str, Source], ratio: Sequence[float], *, seed: int) -> None:
        if len(ratio) != len(parts) or any(r < 0 for r in ratio) or sum(ratio) <= 0:
            raise SettingsError(
                f"`blend(…)` has {len(parts)} sources and the ratio {list(ratio)}; "
                "give one number from 0 for each, not all 0"
            )
        self._parts, self._seed = dict(parts), seed
        exact = np.asarray(ratio, dtype=np.float64) / sum(ratio) * self._BLOCK
        counts = np.floor(exact).astype(np.int64)
        for i in np.argsort(counts - exact)[: self._BLOCK - int(counts.sum())]:
            counts[i] += 1
        self._counts = counts
        order = generator(seed, 1).permutation(np.repeat(np.arange(len(parts)), counts))
        self._which = order
        self._rank = np.zeros(self._BLOCK, dtype=np.int64)
        for part in range(len(parts)):
            here = order == part
            self._rank[here] = np.arange(int(here.sum()))

    @property
    def num_samples(self) -> int | None:
        """There is no end: each source starts over when it is through."""
        return None

    @property
    def tokenizer(self) -> Tokenizer | None:
        return next(iter(self._parts.values())).tokenizer

    @property
    def tokens_per_byte(self) -> float | None:
        known = [p.tokens_per_byte for p in self._parts.values()]
        rates = [rate for rate in known if rate is not None]
        if len(rates) < len(known):
            return None
        return float(np.average(rates, weights=self._counts))

    @property
    def fingerprint(self) -> str:
        text = "|".join(
            [*(p.fingerprint for p in self._parts.values()), str(self._counts), str(self._seed)]
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def batch(self, indices: Sequence[int]) -> Mapping[str, Tensor]:
        block, place = np.divmod(np.asarray(indices, dtype=np.int64), self._BLOCK)
        which = self._which[place]
        inner = block * self._counts[which] + self._rank[place]
        rows: dict[int, Mapping[str, Tensor]] = {}
        for part, source in enumerate(self._parts.values()):
            for at in np.flatnonzero(which == part):
                rows[int(at)] = source.batch([int(inner[at])])
        return {name: torch.cat([rows[i][name] for i in range(len(indices))]) for name in rows[0]}

    def bytes_of(self, batch: Mapping[str, Tensor]) -> int | None:
        return next(iter(self._parts.values())).bytes_of(batch)


class PythonSource(BaseSource):
    """Samples of a map-style torch Dataset: dictionaries by input name."""

    def __init__(
        self, target: str, inputs: Sequence[InputInfo], base_dir: Path, *, seed: int, shuffled: bool
    ) -> None:
        self._dataset = _call(target, base_dir)
        if not hasattr(self._dataset, "__len__") or not hasattr(self._dataset, "__getitem__"):
            raise SettingsError(
                f"`python({target!r})` gave no map-style Dataset: no length or no items"
            )
        size = len(self._dataset)
        if size < 1:
            raise SettingsError(f"`python({target!r})` gave an empty Dataset")
        first = self._dataset[0]
        if not isinstance(first, Mapping):
            raise SettingsError(
                f"`python({target!r})`: a sample is a {type(first).__name__}, not a dictionary by input name"
            )
        check_fields(inputs, set(first), f"python({target!r})")
        self._names = [info.name for info in inputs]
        super().__init__(size, seed=seed, shuffled=shuffled, identity=f"python|{target}")

    def samples(self, positions: Ints, epochs: Ints) -> Mapping[str, Tensor]:
        rows = [self._dataset[int(position)] for position in positions]
        return {n: torch.stack([torch.as_tensor(row[n]) for row in rows]) for n in self._names}


def _call(target: str, base_dir: Path) -> Any:
    module_name, _, function = target.partition(":")
    if not module_name or not function:
        raise SettingsError(f'`python("{target}")` is written python("module:function")')
    sys.path.insert(0, str(base_dir))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"`python({target!r})`: no module `{error.name}` in {base_dir}"
        ) from error
    finally:
        sys.path.remove(str(base_dir))
    made: Callable[[], Any] | None = getattr(module, function, None)
    if not callable(made):
        raise SettingsError(f"`python({target!r})`: {module_name} has no function `{function}`")
    return made()
