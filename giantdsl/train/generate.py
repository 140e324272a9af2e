"""Text from a trained language model.

Keys and values of earlier tokens are kept, as long as the text is no longer than the model's
sequence; after that the context slides and each token runs all of it again. What is drawn depends
on (seed, position) alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from giantdsl.errors import SettingsError
from giantdsl.plan import InputInfo, Plan
from giantdsl.runtime.loader import load_source
from giantdsl.runtime.rng import uniform
from giantdsl.train.data_protocol import Tokenizer

_UNFINISHED = "\ufffd"
"""What a decoder gives for bytes that are not yet a whole character."""


def generate(
    module: nn.Module,
    plan: Plan,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    max_tokens: int = 200,
    temperature: float = 1.0,
    top_p: float = 1.0,
    seed: int = 0,
) -> Iterator[str]:
    """Pieces of text that follow `prompt`, as soon as they are whole characters.

    `temperature` 0 takes the likeliest token. `top_p` draws from the likeliest tokens that
    together have this probability (Holtzman 2020). A context longer than the model's sequence
    slides. Raises SettingsError, before the first piece, for what cannot work.
    """
    if temperature < 0:
        raise SettingsError(f"temperature is 0 or more, not {temperature:g}")
    if not 0 < top_p <= 1:
        raise SettingsError(f"top-p is above 0 and at most 1, not {top_p:g}")
    shape = language_model(plan)
    ids = tokenizer.encode(prompt)
    if not ids:
        raise SettingsError("the prompt is empty; give it at least one character")
    beyond = next((i for i in ids if i >= shape.num_classes), None)
    if beyond is not None:
        raise SettingsError(
            f"the tokenizer gives token {beyond}, but the model knows {shape.num_classes}; "
            "is it the tokenizer that the model was trained with?"
        )
    scores = Scores(module, plan, shape)
    tokens = _tokens(scores, ids, max_tokens, temperature, top_p, seed)
    return decode_stream(tokenizer, ids, tokens)


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """How to ask a plan's module for the next token."""

    tokens: InputInfo
    context: int
    num_classes: int
    output: int
    num_outputs: int


def language_model(plan: Plan) -> LanguageModel:
    """Raises SettingsError where the model does not continue one sequence of tokens."""
    needed = [info for info in plan.inputs if not info.loss_only]
    if len(needed) != 1 or needed[0].num_classes is None or len(needed[0].seq) != 1:
        names = ", ".join(f"`{info.name}`" for info in needed)
        raise SettingsError(
            f"model `{plan.model}` does not continue a text: `forward` needs {names}, "
            "and generation gives one sequence of tokens"
        )
    tokens = needed[0]
    context, num_classes = tokens.sizes[tokens.seq[0]], tokens.num_classes
    if context is None or num_classes is None:
        raise SettingsError(f"the length of `{tokens.name}` is not known")
    names = plan.output_names
    output = names.index("logits") if "logits" in names else 0
    return LanguageModel(tokens, context, num_classes, output, len(names))


def _tokens(
    scores: Scores,
    prompt: Sequence[int],
    max_tokens: int,
    temperature: float,
    top_p: float,
    seed: int,
) -> Iterator[int]:
    ids = list(prompt)
    for _ in range(max_tokens):
        ids.append(draw(scores.next(ids), temperature, top_p, uniform(seed, len(ids))))
        yield ids[-1]


class Scores:
    """The scores of the token that follows a text which only grows."""

    def __init__(self, module: nn.Module, plan: Plan, shape: LanguageModel) -> None:
        self._module, self._shape = module.eval(), shape
        self._device = next(module.parameters()).device
        self._cached: Any = None
        self._cache: Any = None
        if plan.decode_source:
            space = load_source(plan.decode_source, "decode.py")
            with torch.device("meta"):
                self._cached = getattr(space, plan.class_name)().eval()
            self._cached.load_state_dict(module.state_dict(), assign=True)
            self._cache = space.Cache(shape.context)

    @property
    def is_cached(self) -> bool:
        """Whether earlier tokens are not computed again."""
        return self._cache is not None

    def next(self, ids: Sequence[int]) -> Tensor:
        """Float64 [classes] on the CPU; `ids` must begin with those of the call before."""
        with torch.inference_mode():
            if self._cache is not None and len(ids) <= self._shape.context:
                new = torch.tensor([list(ids[self._cache.length :])], device=self._device)
                logits = _last_logits(self._cached(new, self._cache), self._shape)
                self._cache.advance(new.size(1))
                return logits
            self._cache = None
            context = torch.tensor([list(ids[-self._shape.context :])], device=self._device)
            if self._shape.tokens.seq[0] == 0:
                context = context.T
            return _last_logits(self._module(**{self._shape.tokens.keyword: context}), self._shape)


def _last_logits(outputs: Tensor | tuple[Tensor, ...], shape: LanguageModel) -> Tensor:
    """The scores of the next token, float64 [classes] on the CPU."""
    logits = outputs if isinstance(outputs, Tensor) else outputs[shape.output]
    if logits.shape[-1] != shape.num_classes or logits.dim() != 3:
        raise SettingsError(
            f"the model's output is {' x '.join(map(str, logits.shape))}; generation needs scores "
            f"of {shape.num_classes} tokens at each position"
        )
    last = logits[0, -1] if shape.tokens.seq[0] == 1 else logits[-1, 0]
    return last.cpu().double()


def draw(logits: Tensor, temperature: float, top_p: float, chance: float) -> int:
    """One class by its score. `chance` in [0, 1) decides; the same one, the same class."""
    if temperature == 0:
        return int(logits.argmax())
    probabilities, order = torch.softmax(logits / temperature, dim=-1).sort(
        descending=True, stable=True
    )
    total = probabilities.cumsum(0)
    kept = min(int((total < top_p).sum()) + 1, len(total))
    place = int(torch.searchsorted(total[:kept], chance * float(total[kept - 1]), right=True))
    return int(order[min(place, kept - 1)])


def decode_stream(
    tokenizer: Tokenizer, prompt: Sequence[int], tokens: Iterator[int]
) -> Iterator[str]:
    """Text of `tokens`, which follow `prompt`.

    Decoding piece by piece loses spaces and splits characters; so each piece is the difference
    between two decodings that begin a little earlier, held back until its characters are whole.
    """
    ids = list(prompt)
    begin, shown = 0, len(ids)
    before = tokenizer.decode(ids)
    for token in tokens:
        ids.append(token)
        text = tokenizer.decode(ids[begin:])
        if text.endswith(_UNFINISHED) or len(text) <= len(before):
            continue
        yield text[len(before) :]
        begin, shown = shown, len(ids)
        before = tokenizer.decode(ids[begin:shown])
    rest = tokenizer.decode(ids[begin:])
    if len(rest) > len(before):
        yield rest[len(before) :]
