"""What the training loop asks of data. `giantdsl.train.data` builds objects of this shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

Batch = Mapping[str, Tensor]


@runtime_checkable
class Tokenizer(Protocol):
    """Text to token ids and back."""

    def encode(self, text: str, /) -> list[int]: ...

    def decode(self, ids: Sequence[int], /) -> str: ...


class Source(Protocol):
    """Samples by number.

    A sample index counts from 0 through all epochs: epoch `index // num_samples`. What it
    holds is a pure function of (seed, epoch, index), so any caller at any time gets the same.
    """

    @property
    def num_samples(self) -> int | None:
        """Samples in an epoch; None where there is no end."""

    @property
    def tokenizer(self) -> Tokenizer | None: ...

    @property
    def tokens_per_byte(self) -> float | None:
        """Of the text before it was encoded; None where there is no text."""

    @property
    def fingerprint(self) -> str:
        """Changes when the same index would give another sample."""

    def batch(self, indices: Sequence[int]) -> Batch:
        """Tensors by input name; the axes are the input's, the batch axis has `len(indices)`."""

    def bytes_of(self, batch: Batch) -> int | None:
        """Bytes of text that the batch's labels stand for; None where that is not known."""
