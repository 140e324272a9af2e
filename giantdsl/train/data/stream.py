"""Chosen documents of token files as one row of tokens, read by position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from giantdsl.train.data.indexed import Tokens

Split = Literal["train", "eval", "all"]
Array = npt.NDArray[np.int64]


class Stream:
    """The tokens of some documents, end to end. Nothing is copied until it is read."""

    def __init__(
        self, tokens: Sequence[npt.NDArray[Any]], file: Array, starts: Array, lengths: Array
    ) -> None:
        self._tokens = tokens
        kept = lengths > 0
        self._file, self._starts, self._lengths = file[kept], starts[kept], lengths[kept]
        self._ends = np.cumsum(self._lengths)

    @property
    def num_tokens(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def num_documents(self) -> int:
        return len(self._lengths)

    def read(self, positions: Array) -> tuple[Array, Array]:
        """The tokens at positions of any shape, and the number of the document of each."""
        document = np.searchsorted(self._ends, positions, side="right")
        place = self._starts[document] + positions - (self._ends - self._lengths)[document]
        if len(self._tokens) == 1:
            return self._tokens[0][place].astype(np.int64), document
        ids = np.empty(positions.shape, dtype=np.int64)
        which = self._file[document]
        for number, tokens in enumerate(self._tokens):
            here = which == number
            ids[here] = tokens[place[here]]
        return ids, document

    def offset_in_document(self, positions: Array, document: Array) -> Array:
        """How far into its document each position is."""
        offset: Array = positions - (self._ends - self._lengths)[document]
        return offset

    def highest(self) -> int:
        """The largest token id; -1 where there are none."""
        found = [int(t.max()) for t in self._tokens if len(t)]
        return max(found, default=-1)


def make_stream(files: Sequence[Tokens], split: Split, held_out: float) -> Stream:
    """The documents of a split.

    Of many documents, every so-many-th is held out; where there are too few for that, the end of
    the row of tokens is. A document is never in both splits, except the one that is cut there.
    """
    file = np.concatenate([np.full(len(t.lengths), i, np.int64) for i, t in enumerate(files)])
    starts = np.concatenate([t.starts for t in files])
    lengths = np.concatenate([t.lengths for t in files])
    tokens = [t.tokens for t in files]
    if split == "all" or held_out <= 0:
        return Stream(tokens, file, starts, lengths)
    every = max(2, round(1 / held_out))
    if (lengths > 0).sum() >= 2 * every:
        chosen = np.arange(len(lengths)) % every == every - 1
        if split == "train":
            chosen = ~chosen
        return Stream(tokens, file[chosen], starts[chosen], lengths[chosen])
    return _cut(tokens, file, starts, lengths, split, held_out)


def _cut(
    tokens: Sequence[npt.NDArray[Any]],
    file: Array,
    starts: Array,
    lengths: Array,
    split: Split,
    held_out: float,
) -> Stream:
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    border = total - int(total * held_out)
    before = np.clip(border - (ends - lengths), 0, lengths)
    if split == "train":
        return Stream(tokens, file, starts, before)
    return Stream(tokens, file, starts + before, lengths - before)
