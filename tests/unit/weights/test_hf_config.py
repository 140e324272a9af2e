"""config.json to a spec, and a program to config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from giantdsl.driver import compile_spec
from giantdsl.errors import SettingsError
from giantdsl.hf.spec import weight_map
from giantdsl.ir.nodes import Program
from giantdsl.ir.parameters import count_parameters
from giantdsl.resources import model_path
from giantdsl.source import SourceFile
from giantdsl.weights.hf_config import FAMILIES, import_spec
from giantdsl.weights.hf_export import export_config

Json = dict[str, Any]

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}

CONFIGS: dict[str, Json] = {
    "gpt2": {
        "model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 3, "n_positions": 40,
        "vocab_size": 61, "layer_norm_epsilon": 1e-6, "attn_pdrop": 0.0, "resid_pdrop": 0.2,
        "embd_pdrop": 0.3, "activation_function": "gelu", "n_inner": 100,
        "tie_word_embeddings": True,
    },
    "llama": {
        "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48, "num_hidden_layers": 3,
        "vocab_size": 64, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096,
        "rope_parameters": {**LLAMA3_ROPE, "rope_theta": 5e5}, "tie_word_embeddings": True,
        "attention_dropout": 0.1, "attention_bias": False, "mlp_bias": False,
        "hidden_act": "silu",
    },
    "bert": {
        "model_type": "bert", "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 100,
        "vocab_size": 61, "type_vocab_size": 3, "max_position_embeddings": 40,
        "num_hidden_layers": 3, "hidden_act": "gelu_new", "attention_probs_dropout_prob": 0.0,
        "hidden_dropout_prob": 0.2, "layer_norm_eps": 1e-6, "tie_word_embeddings": True,
    },
    "t5": {
        "model_type": "t5", "d_model": 32, "d_kv": 16, "d_ff": 48, "num_heads": 4,
        "num_layers": 2, "num_decoder_layers": 3, "vocab_size": 64,
        "relative_attention_max_distance": 64, "relative_attention_num_buckets": 16,
        "layer_norm_epsilon": 1e-5, "dropout_rate": 0.3, "feed_forward_proj": "relu",
        "is_encoder_decoder": True, "tie_word_embeddings": True,
    },
    "mixtral": {
        "model_type": "mixtral", "hidden_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 48,
        "num_hidden_layers": 4, "vocab_size": 64, "max_position_embeddings": 128,
        "num_local_experts": 5, "num_experts_per_tok": 3, "sliding_window": 32,
        "router_aux_loss_coef": 0.25, "rms_norm_eps": 1e-6, "attention_dropout": 0.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "hidden_act": "silu",
        "tie_word_embeddings": False,
    },
    "vit": {
        "model_type": "vit", "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 100,
        "image_size": [6, 8], "patch_size": 2, "num_channels": 4, "num_hidden_layers": 3,
        "hidden_act": "gelu_new", "layer_norm_eps": 1e-6, "qkv_bias": True,
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
        "id2label": {str(i): f"LABEL_{i}" for i in range(7)},
    },
}  # fmt: skip


def write(folder: Path, config: Json) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def imported(folder: Path, config: Json) -> str:
    return import_spec(write(folder, config))


@pytest.mark.parametrize("kind", list(FAMILIES))
def test_every_number_comes_back(tmp_path: Path, kind: str) -> None:
    text = imported(tmp_path, CONFIGS[kind])
    spec = compile_spec(SourceFile("imported.giant", text))
    assert spec.warnings == ()
    stored = [t.stored for t in weight_map(spec, "hf").transfers()]
    config = export_config(spec.program, stored)
    assert config is not None
    assert {key: config[key] for key in CONFIGS[kind]} == CONFIGS[kind]
    assert "init = normal(" not in text and "profile" not in text and "train {" not in text
    assert text.startswith("# Made from ")


@pytest.mark.parametrize("kind", list(FAMILIES))
def test_the_published_model_comes_back_as_itself(tmp_path: Path, kind: str) -> None:
    shipped = compile_spec(model_path(FAMILIES[kind][0]))
    stored = [t.stored for t in weight_map(shipped, "hf").transfers()]
    config = export_config(shipped.program, stored)
    assert config is not None
    again = compile_spec(SourceFile("again.giant", imported(tmp_path, config)))
    assert count_parameters(again.program) == count_parameters(shipped.program)
    assert again.program.scalars == shipped.program.scalars
    # T5 has no longest sequence, so its configuration says nothing of `src` and `tgt`.
    assert sizes_of(again.program) == sizes_of(shipped.program)


def sizes_of(program: Program) -> dict[str, tuple[int | None, int | None]]:
    return {name: (axis.size, axis.logical) for name, axis in program.axes.items()}


@pytest.mark.parametrize("kind", list(FAMILIES))
def test_an_unknown_key_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    with pytest.raises(SettingsError, match="this key is not understood: `logit_twist`"):
        imported(tmp_path, {**CONFIGS[kind], "logit_twist": None})


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("gpt2", "scale_attn_by_inverse_layer_idx", True),
        ("gpt2", "add_cross_attention", True),
        ("gpt2", "tie_word_embeddings", False),
        ("gpt2", "activation_function", "swish"),
        ("gpt2", "n_head", 5),
        ("gpt2", "n_layer", 0),
        ("gpt2", "n_layer", True),
        ("gpt2", "resid_pdrop", 1.0),
        ("gpt2", "vocab_size", "61"),
        ("gpt2", "quantization_config", {"bits": 4}),
        ("llama", "attention_bias", True),
        ("llama", "mlp_bias", True),
        ("llama", "hidden_act", "gelu"),
        ("llama", "num_key_value_heads", 3),
        ("llama", "rope_scaling", {"type": "dynamic", "factor": 2.0}),
        ("llama", "rope_scaling", [1]),
        ("bert", "position_embedding_type", "relative_key"),
        ("bert", "is_decoder", True),
        ("t5", "feed_forward_proj", "gated-gelu"),
        ("t5", "tie_word_embeddings", False),
        ("mixtral", "num_experts_per_tok", 6),
        ("mixtral", "router_jitter_noise", 0.1),
        ("vit", "qkv_bias", False),
        ("vit", "hidden_dropout_prob", 0.1),
        ("vit", "patch_size", 4),
        ("vit", "image_size", [6, 8, 2]),
    ],
)
def test_a_value_the_spec_has_no_word_for_is_refused(
    tmp_path: Path, kind: str, key: str, value: object
) -> None:
    inner = "type" if isinstance(value, dict) and "type" in value else key
    with pytest.raises(SettingsError) as caught:
        imported(tmp_path, {**CONFIGS[kind], key: value})
    assert f"`{inner}`" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_key_inside_the_rope_is_refused(tmp_path: Path) -> None:
    rope = {**LLAMA3_ROPE, "mscale": 1.0}
    with pytest.raises(SettingsError, match=r"`rope_parameters`: this key .* `mscale`"):
        imported(tmp_path, {**CONFIGS["llama"], "rope_parameters": rope})


def test_old_and_new_rope_settings_are_one(tmp_path: Path) -> None:
    old = {k: v for k, v in CONFIGS["llama"].items() if k != "rope_parameters"}
    old |= {"rope_theta": 5e5, "rope_scaling": LLAMA3_ROPE}
    assert imported(tmp_path, old) == imported(tmp_path, CONFIGS["llama"])


def test_keys_may_be_left_out(tmp_path: Path) -> None:
    text = imported(tmp_path, {"model_type": "gpt2"})
    assert count_parameters(compile_spec(SourceFile("x.giant", text)).program) == 124_439_808


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ('{"model_type": "lama"}', "did you mean `llama`"),
        ('{"model_type": "zebra"}', "understood are gpt2"),
        ("{}", "`model_type`"),
        ('{"model_type": ["gpt2"]}', "`model_type`"),
        ("[]", "not a JSON object"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_configuration(tmp_path: Path, written: str, why: str) -> None:
    (tmp_path / "config.json").write_text(written)
    with pytest.raises(SettingsError) as caught:
        import_spec(tmp_path)
    assert why in str(caught.value)


def test_no_configuration_at_all(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot read"):
        import_spec(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rope(q)", "q"),
        ("silu(gate)", "gelu(gate)"),
        ("causal=true", "causal=false"),
        ("default rmsnorm", "default linear(bias=true)\ndefault rmsnorm"),
        ("causal=true", "causal=true, window=9"),
        ("mlp(rmsnorm(x) as norm2)", "dropout(mlp(rmsnorm(x) as norm2), 0.5)"),
        ("rmsnorm(x) as norm1", "rmsnorm(x, eps=1e-3) as norm1"),
    ],
)
def test_another_function_gets_no_configuration(old: str, new: str) -> None:
    text = model_path("llama3").read_text()
    assert old in text
    spec = compile_spec(SourceFile("other.giant", text.replace(old, new)))
    stored = [t.stored for t in weight_map(spec, "hf").transfers()]
    assert export_config(spec.program, stored) is None
