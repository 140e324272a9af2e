"""Language modelling: windows of tokens, the label of each the next one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from giantdsl.errors import SettingsError
from giantdsl.plan import InputInfo
from giantdsl.train.data.fields import check_fields, check_ids, input_named, sequence_length
from giantdsl.train.data.order import Ints
from giantdsl.train.data.source import BaseSource
from giantdsl.train.data.stream import Stream
from giantdsl.train.data.tokenizers import Tokenizers

IGNORED = -100


class LanguageSource(BaseSource):
    """tokens [b, s] and labels [b, s], the next tokens.

    With `document` and `position` among the model's inputs: the number of the document in the
    window and the place in it; the label at the end of a document is then ignored, and so it is
    where `pack` is asked for.
    """

    def __init__(
        self,
        stream: Stream,
        inputs: Sequence[InputInfo],
        *,
        pack: bool,
        seed: int,
        shuffled: bool,
        identity: str,
        tokenizer: Tokenizers | None,
        tokens_per_byte: float | None,
    ) -> None:
        self._length = sequence_length(inputs, "tokens")
        given = {"tokens", "labels", "document", "position"}
        check_fields(inputs, given, "text")
        check_ids(inputs, "tokens", stream.highest(), "the data")
        self._packed = pack or input_named(inputs, "document") is not None
        if pack and input_named(inputs, "document") is None:
            raise SettingsError(
                "`pack = true` needs a model with an input `document[b, s]: int`, given to "
                "`sdpa(…, document=document)`"
            )
        self._names = [info.name for info in inputs]
        self._stream = stream
        num_samples = max(0, (stream.num_tokens - 1) // self._length)
        if num_samples == 0:
            raise SettingsError(
                f"the data has {stream.num_tokens:,} tokens, one sample takes "
                f"{self._length + 1:,}; use more text or a shorter sequence"
            )
        super().__init__(
            num_samples,
            seed=seed,
            shuffled=shuffled,
            identity=f"{identity}|lm|{self._length}|{self._packed}",
            tokenizer=tokenizer,
            tokens_per_byte=tokens_per_byte,
        )

    def samples(self, positions: Ints, epochs: Ints) -> Mapping[str, Tensor]:
        places = positions[:, None] * self._length + np.arange(self._length + 1)
        ids, document = self._stream.read(places)
        found = {"tokens": ids[:, :-1], "labels": ids[:, 1:].copy()}
        if self._packed:
            found["labels"][document[:, 1:] != document[:, :-1]] = IGNORED
            inside = document[:, :-1]
            found["document"] = inside - inside[:, :1]
            offset = self._stream.offset_in_document(places[:, :-1], inside)
            found["position"] = np.minimum(
                offset, offset - offset[:, :1] * (inside == inside[:, :1])
            )
        return {name: torch.from_numpy(np.ascontiguousarray(found[name])) for name in self._names}
