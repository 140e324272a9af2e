"""Span corruption (Raffel 2020): spans become sentinels, the decoder writes the spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from giantdsl.errors import SettingsError
from giantdsl.plan import InputInfo
from giantdsl.train.data.fields import check_fields, input_named, sequence_length
from giantdsl.train.data.language import IGNORED
from giantdsl.train.data.order import Ints, generator
from giantdsl.train.data.source import BaseSource
from giantdsl.train.data.stream import Stream
from giantdsl.train.data.tokenizers import Tokenizers

_FIELDS = {"tokens", "keep", "inputs", "labels"}
_PAD = 0


class SpanSource(BaseSource):
    """tokens, keep [b, src]; inputs, labels [b, tgt].

    Sentinels are the highest ids, counted down. `inputs` are the labels shifted right by one,
    starting with the padding token, as T5 does.
    """

    def __init__(
        self,
        stream: Stream,
        inputs: Sequence[InputInfo],
        tokenizer: Tokenizers | None,
        *,
        rate: float,
        span: float,
        seed: int,
        shuffled: bool,
        identity: str,
        tokens_per_byte: float | None,
    ) -> None:
        check_fields(inputs, _FIELDS, "span_corruption(…)")
        self._names = [info.name for info in inputs]
        self._source, self._target = (sequence_length(inputs, n) for n in ("tokens", "labels"))
        self._stream, self._order_seed = stream, seed
        info = input_named(inputs, "tokens")
        assert info is not None
        self._top = (info.num_classes or stream.highest() + 101) - 1
        self._raw, self._removed, self._num_spans = raw_length(
            self._source, self._target, rate, span
        )
        if stream.highest() > self._top - self._num_spans:
            raise SettingsError(
                f"`span_corruption(…)` needs {self._num_spans} ids above the tokenizer's for its "
                f"sentinels; ids go up to {stream.highest():,} of {self._top + 1:,}"
            )
        num_samples = stream.num_tokens // self._raw
        if num_samples < 1:
            raise SettingsError(
                f"the data has {stream.num_tokens:,} tokens, one sample takes {self._raw:,}"
            )
        super().__init__(
            num_samples,
            seed=seed,
            shuffled=shuffled,
            identity=f"{identity}|spans|{rate}|{span}|{self._source}|{self._target}",
            tokenizer=tokenizer,
            tokens_per_byte=tokens_per_byte,
        )

    def samples(self, positions: Ints, epochs: Ints) -> Mapping[str, Tensor]:
        rows = [self._sample(int(p), int(e)) for p, e in zip(positions, epochs, strict=True)]
        return {
            name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in self._names
        }

    def _sample(self, position: int, epoch: int) -> dict[str, Ints]:
        draw = generator(self._order_seed, epoch, position)
        ids, _ = self._stream.read(np.arange(position * self._raw, (position + 1) * self._raw))
        removed = _parts(draw, self._removed, self._num_spans)
        kept = _parts(draw, self._raw - self._removed, self._num_spans)
        source: list[int] = []
        target: list[int] = []
        at = 0
        for i, (keep, remove) in enumerate(zip(kept, removed, strict=True)):
            sentinel = self._top - i
            source += [*ids[at : at + keep].tolist(), sentinel]
            target += [sentinel, *ids[at + keep : at + keep + remove].tolist()]
            at += keep + remove
        return corrupted(source, target, self._source, self._target)


def corrupted(
    source: Sequence[int], target: Sequence[int], source_size: int, target_size: int
) -> dict[str, Ints]:
    """The arrays of one sample from its two rows of tokens."""
    tokens = np.full(source_size, _PAD, dtype=np.int64)
    tokens[: len(source)] = source[:source_size]
    labels = np.full(target_size, IGNORED, dtype=np.int64)
    labels[: len(target)] = target[:target_size]
    inputs = np.full(target_size, _PAD, dtype=np.int64)
    inputs[1:] = np.where(labels[:-1] == IGNORED, _PAD, labels[:-1])
    keep = (np.arange(source_size) < len(source)).astype(bool)
    return {"tokens": tokens, "keep": keep, "inputs": inputs, "labels": labels}  # type: ignore[dict-item]


def raw_length(source: int, target: int, rate: float, span: float) -> tuple[int, int, int]:
    """(tokens of text, tokens removed, spans) of the longest text that fits both sides."""
    best = (0, 0, 0)
    for raw in range(2, 4 * (source + target)):
        removed = max(1, round(raw * rate))
        spans = max(1, round(removed / span))
        fits = raw - removed + spans <= source and removed + spans <= target
        if fits and removed >= spans and raw - removed >= spans:
            best = (raw, removed, spans)
    if best[0] == 0:
        raise SettingsError(f"no span fits into sequences of {source} and {target}")
    return best


def _parts(draw: np.random.Generator, total: int, count: int) -> list[int]:
    """`total` as `count` whole numbers of at least 1, at random."""
    cuts = np.sort(draw.choice(total - 1, count - 1, replace=False)) + 1
    return [int(n) for n in np.diff([0, *cuts, total])]
