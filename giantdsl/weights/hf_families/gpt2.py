"""GPT-2: `GPT2LMHeadModel`."""

from __future__ import annotations

from giantdsl.weights.hf_families.shared import GELU, check_divides, padded_vocab, set_heads
from giantdsl.weights.hf_reader import ConfigReader
from giantdsl.weights.spec_text import SpecText


def apply(config: ConfigReader, spec: SpecText) -> None:
    """Fill in `models/gpt2.giant`."""
    width, heads = config.whole("n_embd", 768), config.whole("n_head", 12)
    check_divides(config, "n_head", width, heads)
    set_heads(spec, width, heads, width // heads)
    inner = config.whole("n_inner", 4 * width)
    if inner != 4 * width:
        spec.set_dim("ff", inner)
    spec.set_dim("s", config.whole("n_positions", 1024))
    spec.set_dim("vocab", padded_vocab(config.whole("vocab_size", 50257), 128))
    spec.set_dim("layers", config.whole("n_layer", 12))
    act = config.word("activation_function", "gelu_new", tuple(GELU))
    spec.replace("gelu_tanh(", GELU[act] + "(")
    eps = config.number("layer_norm_epsilon", 1e-5)
    if eps != 1e-5:
        spec.replace("default embedding(", f"default layernorm(eps={eps})\ndefault embedding(")
    _dropouts(config, spec)
    config.must("tie_word_embeddings", True)
    config.must("scale_attn_weights", True)
    config.must("scale_attn_by_inverse_layer_idx", False)
    config.must("reorder_and_upcast_attn", False)
    config.ignore("n_ctx")
    config.ignore(
        "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
        "summary_use_proj",
    )  # fmt: skip


def _dropouts(config: ConfigReader, spec: SpecText) -> None:
    """One number in `dims` where all three are equal, else each where it is used."""
    attention = config.share("attn_pdrop", 0.1)
    embedding = config.share("embd_pdrop", 0.1)
    residual = config.share("resid_pdrop", 0.1)
    spec.set_dim("drop", residual)
    if attention != residual:
        spec.replace("dropout=drop", f"dropout={attention}")
    if embedding != residual:
        spec.replace("[s, d], drop)", f"[s, d], {embedding})")
