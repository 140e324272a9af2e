"""BERT with its pre-training heads: `BertForPreTraining`."""

from __future__ import annotations

from giantdsl.weights.hf_families.shared import GELU, check_divides, padded_vocab, set_heads
from giantdsl.weights.hf_reader import ConfigReader
from giantdsl.weights.spec_text import SpecText


def apply(config: ConfigReader, spec: SpecText) -> None:
    """Fill in `models/bert.giant`."""
    width, heads = config.whole("hidden_size", 768), config.whole("num_attention_heads", 12)
    check_divides(config, "num_attention_heads", width, heads)
    set_heads(spec, width, heads, width // heads)
    inner = config.whole("intermediate_size", 3072)
    if inner != 4 * width:
        spec.set_dim("ff", inner)
    spec.set_dim("s", config.whole("max_position_embeddings", 512))
    spec.set_dim("vocab", padded_vocab(config.whole("vocab_size", 30522), 64))
    spec.set_dim("types", config.whole("type_vocab_size", 2))
    spec.set_dim("layers", config.whole("num_hidden_layers", 12))
    spec.set_default("layernorm", "eps", config.number("layer_norm_eps", 1e-12))
    act = GELU[config.word("hidden_act", "gelu", tuple(GELU))]
    spec.replace("gelu(", f"{act}(", count=2)
    hidden = config.share("hidden_dropout_prob", 0.1)
    attention = config.share("attention_probs_dropout_prob", 0.1)
    spec.set_dim("drop", hidden)
    if attention != hidden:
        spec.replace("dropout=drop", f"dropout={attention}")
    config.must("position_embedding_type", "absolute")
    config.must("tie_word_embeddings", True)
    config.ignore("classifier_dropout")
    _ignore_old_pooler(config)


def _ignore_old_pooler(config: ConfigReader) -> None:
    """Settings of a pooler that the converter of TensorFlow checkpoints wrote and nobody reads."""
    config.ignore(
        "directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
        "pooler_size_per_head", "pooler_type",
    )  # fmt: skip
