"""LLaMA 1 to 3: `LlamaForCausalLM`."""

from __future__ import annotations

from giantdsl.weights.hf_families.shared import set_heads, set_rope
from giantdsl.weights.hf_reader import ConfigReader
from giantdsl.weights.spec_text import SpecText


def apply(config: ConfigReader, spec: SpecText) -> None:
    """Fill in `models/llama3.giant`."""
    set_decoder(config, spec, context=2048, theta=10000.0, eps=1e-6)
    spec.set_dim("ff", config.whole("intermediate_size", 11008))
    spec.set_dim("vocab", config.whole("vocab_size", 32000))
    config.must("attention_bias", False)
    config.must("mlp_bias", False)
    # How the products of a layer are cut up for speed; their sum is the same.
    config.ignore("pretraining_tp")


def set_decoder(
    config: ConfigReader, spec: SpecText, *, context: int, theta: float, eps: float
) -> None:
    """The keys that LLaMA and Mixtral share. The keyword arguments are the library's defaults."""
    width = config.whole("hidden_size", 4096)
    heads = config.whole("num_attention_heads", 32)
    kv = config.whole("num_key_value_heads", heads)
    if heads % kv:
        raise config.wrong("num_key_value_heads", kv, f"a divisor of the {heads} heads")
    set_heads(spec, width, heads, config.whole("head_dim", width // heads))
    spec.set_dim("kv", kv)
    spec.set_dim("s", config.whole("max_position_embeddings", context))
    spec.set_dim("layers", config.whole("num_hidden_layers", 32))
    spec.set_default("rmsnorm", "eps", config.number("rms_norm_eps", eps))
    set_rope(config, spec, theta)
    config.word("hidden_act", "silu", ("silu", "swish"))
    dropout = config.share("attention_dropout", 0.0)
    if dropout:
        spec.replace("causal=true)", f"causal=true, dropout={dropout})")
    if config.flag("tie_word_embeddings", False):
        spec.replace("as norm) as head -> [b, s, vocab]", "as norm, tie=tok) -> [b, s, vocab]")
        spec.drop_line("head = ")
