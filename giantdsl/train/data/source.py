"""What all sources have in common: an order of samples, a tokenizer, an identity."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from giantdsl.train.data.order import Ints, permuted
from giantdsl.train.data.tokenizers import Tokenizers


class BaseSource:
    """Samples by number. Subclasses have `samples(positions, epochs)`.

    A sample index counts through all epochs; in each the samples come in an order of their own.
    """

    def __init__(
        self,
        num_samples: int,
        *,
        seed: int,
        shuffled: bool,
        identity: str,
        tokenizer: Tokenizers | None = None,
        tokens_per_byte: float | None = None,
    ) -> None:
        self._num_samples, self._seed, self._shuffled = num_samples, seed, shuffled
        self._tokenizer, self._tokens_per_byte = tokenizer, tokens_per_byte
        self._identity = identity
        self._sizes = tokenizer.token_bytes() if tokenizer is not None else None

    @property
    def num_samples(self) -> int | None:
        """Samples in an epoch."""
        return self._num_samples

    @property
    def tokenizer(self) -> Tokenizers | None:
        return self._tokenizer

    @property
    def tokens_per_byte(self) -> float | None:
        """Of the text before it was encoded; None where there is no text."""
        return self._tokens_per_byte

    @property
    def fingerprint(self) -> str:
        """Changes when the same index would give another sample."""
        text = f"{self._identity}|{self._num_samples}|{self._seed}|{self._shuffled}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def batch(self, indices: Sequence[int]) -> Mapping[str, Tensor]:
        """Tensors by input name, the batch axis first."""
        numbers = np.asarray(indices, dtype=np.int64)
        epochs, positions = np.divmod(numbers, self._num_samples)
        if self._shuffled:
            for epoch in np.unique(epochs):
                here = epochs == epoch
                positions[here] = permuted(
                    positions[here], self._num_samples, self._seed, int(epoch)
                )
        return self.samples(positions, epochs)

    def samples(self, positions: Ints, epochs: Ints) -> Mapping[str, Tensor]:
        """The samples at these places of the data."""
        raise NotImplementedError

    def bytes_of(self, batch: Mapping[str, Tensor]) -> int | None:
        """Bytes of text that the batch's valid labels stand for; None where that is not known."""
        labels = batch.get("labels")
        if labels is None:
            return None
        valid = labels[labels >= 0]
        if self._sizes is not None:
            return int(torch.from_numpy(self._sizes)[valid].sum())
        if self._tokens_per_byte is None:
            return None
        return round(valid.numel() / self._tokens_per_byte)
