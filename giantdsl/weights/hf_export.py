"""The `config.json` that goes with an exported checkpoint.

A program is a family's when it does the family's operations in the family's order, biases,
masks and ties included. Then every number of the configuration is read off the program. Of any
other program nothing is claimed: its weights are written without a configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from giantdsl.attrs import Attr, Config
from giantdsl.ir.nodes import Program
from giantdsl.weights.facts import Facts, NotOfTheFamily
from giantdsl.weights.hf_families.shared import GELU

Json = dict[str, object]

_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_new",
    "relu": "relu",
    "silu": "silu",
}

_ATTENTION_B = "linear+b linear+b linear+b {sdpa} linear+b"
_LLAMA_ATTENTION = "rmsnorm linear linear linear rope rope sdpa:causal linear add rmsnorm"
_T5_ATTENTION = "rmsnorm linear linear linear {sdpa} linear add"
_T5_MLP = "rmsnorm linear act linear add"

SIGNATURES: Mapping[str, str] = MappingProxyType(
    {
        "gpt2": "embedding positions embedding add"
        f" ( layernorm+b {_ATTENTION_B.format(sdpa='sdpa:causal')} add"
        " layernorm+b linear+b act linear+b add ) layernorm+b linear=tied",
        "llama": f"embedding ( {_LLAMA_ATTENTION} linear linear act mul linear add )"
        " rmsnorm linear",
        "mixtral": f"embedding ( {_LLAMA_ATTENTION} linear softmax topk dispatch"
        " linear linear act mul linear combine add ) rmsnorm linear",
        "bert": "embedding embedding add positions embedding add layernorm+b"
        f" ( {_ATTENTION_B.format(sdpa='sdpa:keep')} add layernorm+b"
        " linear+b act linear+b add layernorm+b )"
        " linear+b act layernorm+b linear=tied+b pick linear+b act linear+b",
        "t5": "embedding relative_bias"
        f" ( {_T5_ATTENTION.format(sdpa='sdpa:bias:keep:scale=1')} {_T5_MLP} ) rmsnorm"
        " embedding=tied relative_bias"
        f" ( {_T5_ATTENTION.format(sdpa='sdpa:causal:bias:scale=1')}"
        f" {_T5_ATTENTION.format(sdpa='sdpa:keep:scale=1')} {_T5_MLP} ) rmsnorm"
        " scale linear=tied",
        "vit": "rearrange linear+b param concat param add"
        f" ( layernorm+b {_ATTENTION_B.format(sdpa='sdpa')} add"
        " layernorm+b linear+b act linear+b add ) layernorm+b pick linear+b",
    }
)
"""Each family's operations in order, loops in parentheses; see `facts.signature`."""

_FIRST_NAMES = {
    "gpt2": "transformer.wte.weight",
    "llama": "model.layers.0.mlp.gate_proj.weight",
    "mixtral": "model.layers.0.block_sparse_moe.gate.weight",
    "bert": "bert.embeddings.word_embeddings.weight",
    "t5": "shared.weight",
    "vit": "vit.embeddings.cls_token",
}


def export_config(program: Program, stored: Sequence[str]) -> Json | None:
    """The configuration of a program whose tensors are stored under these names, if known."""
    facts = Facts(program)
    names = set(stored)
    signature = facts.signature()
    for kind, build in _BUILDERS.items():
        tied_llama = kind in ("llama", "mixtral") and signature.endswith(" linear=tied")
        wanted = SIGNATURES[kind] + ("=tied" if tied_llama else "")
        if _FIRST_NAMES[kind] in names and signature == wanted:
            try:
                return {"model_type": kind, **build(facts)}
            except NotOfTheFamily:
                return None
    return None


def _gpt2(facts: Facts) -> Json:
    _expect_even_heads(facts)
    return {
        "architectures": ["GPT2LMHeadModel"],
        "activation_function": _activation(facts),
        "attn_pdrop": facts.same("sdpa", "dropout"),
        "embd_pdrop": facts.dropout(inside=False),
        "resid_pdrop": facts.dropout(inside=True),
        "layer_norm_epsilon": facts.same("layernorm", "eps"),
        "n_embd": facts.width("layernorm"),
        "n_head": facts.axis_of("sdpa", "heads"),
        "n_inner": facts.created("linear", 4),
        "n_layer": facts.loop(0),
        "n_positions": facts.axis_of("positions", "axis"),
        "vocab_size": facts.axis_of("embedding", "index"),
        "tie_word_embeddings": True,
    }


def _llama_like(facts: Facts) -> Json:
    facts.expect(facts.dropout() == 0)
    return {
        "attention_dropout": facts.same("sdpa", "dropout"),
        "head_dim": facts.axis_of("sdpa", "c"),
        "hidden_act": "silu",
        "hidden_size": facts.width("rmsnorm"),
        "max_position_embeddings": facts.axis_of("sdpa", "s"),
        "num_attention_heads": facts.axis_of("sdpa", "heads"),
        "num_hidden_layers": facts.loop(0),
        "num_key_value_heads": facts.axis_of("sdpa", "kv"),
        "rms_norm_eps": facts.same("rmsnorm", "eps"),
        "rope_parameters": _rope(facts),
        "rope_theta": facts.same("rope", "theta"),
        "tie_word_embeddings": facts.signature().endswith("=tied"),
        "vocab_size": facts.axis_of("embedding", "index"),
    }


def _llama(facts: Facts) -> Json:
    facts.expect(_activation(facts) == "silu" and facts.same("sdpa", "window") is None)
    return {
        **_llama_like(facts),
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "mlp_bias": False,
        "intermediate_size": facts.created("linear", 4),
    }


def _mixtral(facts: Facts) -> Json:
    facts.expect(_activation(facts) == "silu" and facts.same("topk", "renormalize") is True)
    facts.expect(facts.same("dispatch", "capacity") is None)
    config = {
        **_llama_like(facts),
        "architectures": ["MixtralForCausalLM"],
        "intermediate_size": facts.created("linear", 5),
        "num_local_experts": facts.axis_of("topk", "over"),
        "num_experts_per_tok": facts.same("topk", "k"),
        "sliding_window": facts.same("sdpa", "window"),
    }
    balance = facts.loss_scale("load_balance")
    if balance is not None:
        config["router_aux_loss_coef"] = balance
    return config


def _bert(facts: Facts) -> Json:
    activations = [op.kind for op in facts.activations()]
    facts.expect(len(activations) == 3 and activations[2] == "tanh")
    facts.expect(activations[0] == activations[1])
    facts.expect(facts.created("linear", -1) == 2)
    _expect_even_heads(facts)
    return {
        "architectures": ["BertForPreTraining"],
        "attention_probs_dropout_prob": facts.same("sdpa", "dropout"),
        "hidden_act": _ACTIVATIONS.get(activations[0]),
        "hidden_dropout_prob": facts.dropout(),
        "hidden_size": facts.width("layernorm"),
        "intermediate_size": facts.created("linear", 4),
        "layer_norm_eps": facts.same("layernorm", "eps"),
        "max_position_embeddings": facts.axis_of("positions", "axis"),
        "num_attention_heads": facts.axis_of("sdpa", "heads"),
        "num_hidden_layers": facts.loop(0),
        "type_vocab_size": facts.axis_of("embedding", "index", 1),
        "vocab_size": facts.axis_of("embedding", "index", 0),
        "tie_word_embeddings": True,
    }


def _t5(facts: Facts) -> Json:
    width = facts.width("rmsnorm")
    two_way = [op.attrs["two_way"] for op in facts.ops("relative_bias")]
    facts.expect(two_way == [True, False] and _activation(facts) == "relu")
    scale = facts.ops("scale")[-1].attrs["by"]
    facts.expect(isinstance(scale, float) and abs(scale - width**-0.5) < 1e-12)
    drop = facts.dropout()
    facts.expect(facts.same("sdpa", "dropout") == drop)
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "d_ff": facts.created("linear", 4),
        "d_kv": facts.axis_of("sdpa", "c"),
        "d_model": width,
        "decoder_start_token_id": 0,
        "dropout_rate": drop,
        "feed_forward_proj": "relu",
        "is_encoder_decoder": True,
        "layer_norm_epsilon": facts.same("rmsnorm", "eps"),
        "num_decoder_layers": facts.loop(1),
        "num_heads": facts.axis_of("sdpa", "heads"),
        "num_layers": facts.loop(0),
        "relative_attention_max_distance": facts.same("relative_bias", "far"),
        "relative_attention_num_buckets": facts.axis_of("relative_bias", "index"),
        "vocab_size": facts.axis_of("embedding", "index"),
        "tie_word_embeddings": True,
    }


def _vit(facts: Facts) -> Json:
    facts.expect(facts.dropout() == 0)
    _expect_even_heads(facts)
    # The contracted axes of the patch map are [channel, patch height, patch width].
    channels, high, wide = facts.contracted("linear", 0)
    height, width = facts.image(channels, high, wide)
    classes = facts.created("linear", -1)
    return {
        "architectures": ["ViTForImageClassification"],
        "attention_probs_dropout_prob": facts.same("sdpa", "dropout"),
        "hidden_act": _activation(facts),
        "hidden_dropout_prob": 0.0,
        "hidden_size": facts.width("layernorm"),
        "id2label": {str(i): f"LABEL_{i}" for i in range(classes)},
        "image_size": height if height == width else [height, width],
        "intermediate_size": facts.created("linear", 5),
        "layer_norm_eps": facts.same("layernorm", "eps"),
        "num_attention_heads": facts.axis_of("sdpa", "heads"),
        "num_channels": facts.extent(channels),
        "num_hidden_layers": facts.loop(0),
        "patch_size": facts.extent(high)
        if facts.extent(high) == facts.extent(wide)
        else [facts.extent(high), facts.extent(wide)],
        "qkv_bias": True,
    }


def _expect_even_heads(facts: Facts) -> None:
    """These families cut their width into heads and have no word for another size."""
    heads, size = facts.axis_of("sdpa", "heads"), facts.axis_of("sdpa", "c")
    facts.expect(heads * size == facts.width("layernorm"))
    facts.expect(facts.same("sdpa", "kv") == facts.same("sdpa", "heads"))


def _activation(facts: Facts) -> str:
    kinds = {op.kind for op in facts.activations()}
    facts.expect(len(kinds) == 1)
    name = _ACTIVATIONS.get(kinds.pop())
    facts.expect(name is not None and (name in GELU or name == "silu"))
    return str(name)


def _rope(facts: Facts) -> Json:
    scaling: Attr = facts.same("rope", "scaling")
    theta = facts.same("rope", "theta")
    if scaling is None:
        return {"rope_type": "default", "rope_theta": theta}
    assert isinstance(scaling, Config), "a rope's scaling is a call"
    numbers = {key: value for key, value in scaling.kwargs if isinstance(value, int | float)}
    config: Json = {
        "rope_type": scaling.name,
        "rope_theta": theta,
        "factor": float(numbers["factor"]),
    }
    if scaling.name == "linear":
        return config
    facts.expect(scaling.name == "llama3")
    return config | {
        "low_freq_factor": float(numbers["low"]),
        "high_freq_factor": float(numbers["high"]),
        "original_max_position_embeddings": numbers["context"],
    }


_BUILDERS: Mapping[str, Callable[[Facts], Json]] = MappingProxyType(
    {
        "gpt2": _gpt2,
        "llama": _llama,
        "mixtral": _mixtral,
        "bert": _bert,
        "t5": _t5,
        "vit": _vit,
    }
)
