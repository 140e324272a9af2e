"""Masked language modelling with sentence pairs (Devlin 2019)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from giantdsl.errors import SettingsError
from giantdsl.plan import InputInfo
from giantdsl.train.data.fields import check_fields, check_ids, sequence_length
from giantdsl.train.data.language import IGNORED
from giantdsl.train.data.order import Ints, generator
from giantdsl.train.data.source import BaseSource
from giantdsl.train.data.stream import Stream
from giantdsl.train.data.tokenizers import Tokenizers

_FIELDS = {"tokens", "labels", "segments", "keep", "follows"}


class MaskedSource(BaseSource):
    """[CLS] a [SEP] b [SEP], a share of the tokens to be guessed.

    tokens, labels (-100 where nothing is guessed), segments, keep [b, s]; follows [b] is 1 where
    b is what comes after a, 0 where it is from elsewhere, each for half of the samples. Of the
    chosen tokens 80 % become [MASK], 10 % a random token, 10 % stay.
    """

    def __init__(
        self,
        stream: Stream,
        inputs: Sequence[InputInfo],
        tokenizer: Tokenizers,
        *,
        mask: float,
        seed: int,
        shuffled: bool,
        identity: str,
        tokens_per_byte: float | None,
    ) -> None:
        check_fields(inputs, _FIELDS, "mlm(…)")
        check_ids(
            inputs, "tokens", max(stream.highest(), tokenizer.vocab_size - 1), "the tokenizer"
        )
        self._names = [info.name for info in inputs]
        self._stream, self._mask, self._order_seed = stream, mask, seed
        self._vocab = tokenizer.vocab_size
        self._length = sequence_length(inputs, "tokens")
        marks = [tokenizer.special(*names) for names in (("[CLS]",), ("[SEP]",), ("[MASK]",))]
        if any(mark is None for mark in marks):
            raise SettingsError(
                "`mlm(…)` needs a tokenizer with [CLS], [SEP] and [MASK], such as bpe(vocab=…)"
            )
        self._cls, self._sep, self._hidden = (int(mark) for mark in marks if mark is not None)
        self._text = self._length - 3
        num_samples = (stream.num_tokens // self._text - 1) if self._text >= 2 else 0
        if num_samples < 1:
            raise SettingsError(
                f"the data has {stream.num_tokens:,} tokens, too few for samples of {self._length:,}"
            )
        super().__init__(
            num_samples,
            seed=seed,
            shuffled=shuffled,
            identity=f"{identity}|mlm|{mask}|{self._length}",
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
        first = self._text // 2
        follows = int(draw.random() < 0.5)
        at = position * self._text
        other = at + first
        if not follows:
            other = int(draw.integers(self._stream.num_tokens - (self._text - first)))
        a, _ = self._stream.read(np.arange(at, at + first))
        b, _ = self._stream.read(np.arange(other, other + self._text - first))
        tokens = np.concatenate([[self._cls], a, [self._sep], b, [self._sep]]).astype(np.int64)
        plain = np.ones(len(tokens), dtype=bool)
        plain[[0, 1 + len(a), -1]] = False
        chosen = plain & (draw.random(len(tokens)) < self._mask)
        labels = np.where(chosen, tokens, IGNORED)
        kind = draw.random(len(tokens))
        random = draw.integers(self._vocab, size=len(tokens))
        hidden = np.where(kind < 0.8, self._hidden, np.where(kind < 0.9, random, tokens))
        segments = (np.arange(len(tokens)) >= 2 + len(a)).astype(np.int64)
        return {
            "tokens": np.where(chosen, hidden, tokens),
            "labels": labels,
            "segments": segments,
            "keep": np.ones(len(tokens), dtype=bool),
            "follows": np.asarray(follows, dtype=np.int64),
        }  # type: ignore[dict-item]
