"""Reading a `config.json` key by key, so that no key is passed over in silence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from giantdsl.errors import SettingsError

MAX_CONFIG_BYTES = 10_000_000

# Keys of every configuration that say nothing about the function: bookkeeping of transformers,
# token numbers, and settings of generation that old versions kept here.
METADATA = frozenset(
    {
        "model_type", "transformers_version", "_name_or_path", "name_or_path", "torch_dtype",
        "dtype", "architectures", "_commit_hash", "auto_map", "use_cache", "output_attentions",
        "output_hidden_states", "return_dict", "torchscript", "use_bfloat16", "problem_type",
        "task_specific_params", "finetuning_task", "tokenizer_class", "prefix", "bos_token_id",
        "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id", "tf_legacy_loss",
        "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
        "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
        "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
        "num_return_sequences", "output_scores", "return_dict_in_generate", "forced_bos_token_id",
        "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty",
        "suppress_tokens", "begin_suppress_tokens", "initializer_range", "attn_implementation",
        "_attn_implementation", "_attn_implementation_autoset", "gradient_checkpointing",
        "chunk_size_feed_forward", "experts_implementation", "_experts_implementation",
    }
)  # fmt: skip

# Keys that every configuration may have and whose other values change the function.
_PLAIN: dict[str, tuple[object, ...]] = {
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "cross_attention_hidden_size": (None,),
    "tie_encoder_decoder": (False,),
    "pruned_heads": ({}, None),
    "is_encoder_decoder": (False,),
    "quantization_config": (None,),
}


class ConfigReader:
    """The keys of one configuration. Each is asked for, or it is an error at `finish`."""

    def __init__(self, values: dict[str, object], place: str) -> None:
        self._values = values
        self._left = set(values) - METADATA
        self.place = place

    def get(self, key: str, default: object = None) -> object:
        """Any value; `default` where the key is missing or null."""
        self._left.discard(key)
        value = self._values.get(key)
        return default if value is None else value

    def whole(self, key: str, default: int | None = None) -> int:
        """A whole number of at least 1."""
        value = self.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.wrong(key, value, "a whole number of at least 1")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.wrong(key, value, "a number")
        return float(value)

    def share(self, key: str, default: float) -> float:
        """A dropout rate."""
        value = self.number(key, default)
        if not 0.0 <= value < 1.0:
            raise self.wrong(key, value, "from 0 up to 1")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, value, "true or false")
        return value

    def word(self, key: str, default: str, known: Sequence[str]) -> str:
        """One of `known`."""
        value = self.get(key, default)
        if not isinstance(value, str) or value not in known:
            raise self.wrong(key, value, " or ".join(f"`{word}`" for word in known))
        return value

    def must(self, key: str, *allowed: object) -> None:
        """A key whose other values the spec has no word for. It may be missing."""
        self._left.discard(key)
        if key not in self._values:
            return
        value = self._values[key]
        if not any(_same(value, other) for other in allowed):
            raise self.wrong(key, value, " or ".join(json.dumps(other) for other in allowed))

    def ignore(self, *keys: str) -> None:
        """Keys that say nothing about the function."""
        self._left.difference_update(keys)

    def section(self, key: str) -> ConfigReader | None:
        """A nested object, to be finished by itself."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(key, value, "an object")
        return ConfigReader(value, f"{self.place}: `{key}`")

    def finish(self) -> None:
        """Raises SettingsError naming the keys nobody asked for."""
        for key, allowed in _PLAIN.items():
            if key in self._left:
                self.must(key, *allowed)
        if self._left:
            names = ", ".join(f"`{key}`" for key in sorted(self._left))
            which = "this key is" if len(self._left) == 1 else "these keys are"
            raise SettingsError(f"{self.place}: {which} not understood: {names}")

    def wrong(self, key: str, value: object, wanted: str) -> SettingsError:
        shown = json.dumps(value, default=str)
        shown = shown if len(shown) <= 80 else shown[:77] + "…"
        return SettingsError(f"{self.place}: `{key}` is {shown}; understood is {wanted}")


def read_config(directory: Path) -> ConfigReader:
    """Read `config.json`. Raises SettingsError when it is missing or no JSON object."""
    path = directory / "config.json"
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise SettingsError(f"`{path}` is too long for a configuration")
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read `{path}`: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"`{path}` is not JSON") from error
    if not isinstance(values, dict):
        raise SettingsError(f"`{path}` is not a JSON object")
    return ConfigReader(values, f"`{path}`")


def _same(value: object, other: object) -> bool:
    """Equal as JSON: `true` is not 1."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)
