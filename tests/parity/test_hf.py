"""Random small models of `transformers` through each spec's `weights hf`: the same function.

The laws (invariants 17, 20, 21): the same logits, nothing unmapped, nothing unused, and what is
exported is what was imported, bit for bit. `transformers` computes rope tables, softmax and norms
of some families in float32 whatever the model's dtype; the bounds allow for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from giantdsl.driver import Compiled, compile_spec, make_plan
from giantdsl.hf import import_spec, load, save
from giantdsl.hf.spec import weight_map
from giantdsl.resources import model_path
from giantdsl.runtime.loader import build_module
from giantdsl.source import SourceFile

tf = pytest.importorskip("transformers", reason="needs transformers: pip install 'giantdsl[hf]'")
safetensors = pytest.importorskip("safetensors.torch")

BOUNDS = {torch.float64: 1e-6, torch.float32: 1e-5}

Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Case:
    """`inputs` are forward's by our names, `names` their names by ours."""

    model: str
    family: str
    config: dict[str, Any]
    overrides: tuple[str, ...]
    inputs: Callable[[], Inputs]
    names: dict[str, str]
    logits: tuple[str, ...] = ("logits",)


def ids(high: int, *shape: int) -> Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(high))


def keep() -> Tensor:
    mask = torch.ones(2, 16, dtype=torch.bool)
    mask[1, 11:] = False
    return mask


LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 1e6}
DECODER = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
}
ONE_PROCESS = tuple(f"parallel.{key}" for key in ("dp=1", "tp=1", "pp=1", "ep=1", "stages=auto"))
SMALL = ("dims.d=32", "dims.layers=2")
KV = (*SMALL, "dims.heads=8", "dims.kv=4", "dims.ff=48", "dims.vocab=64", "dims.s=16")

CASES = {
    "gpt2": Case(
        "gpt2",
        "GPT2LMHeadModel",
        {"vocab_size": 61, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 4},
        (*SMALL, "dims.heads=4", "dims.vocab=pad(61, 8)", "dims.s=16"),
        lambda: {"tokens": ids(61, 2, 16)},
        {"tokens": "input_ids"},
    ),
    "llama3": Case(
        "llama3",
        "LlamaForCausalLM",
        {**DECODER, "rope_parameters": LLAMA3_ROPE},
        KV,
        lambda: {"tokens": ids(64, 2, 16)},
        {"tokens": "input_ids"},
    ),
    "bert": Case(
        "bert",
        "BertForPreTraining",
        {
            "vocab_size": 61,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 128,
            "max_position_embeddings": 16,
        },
        (*SMALL, "dims.heads=4", "dims.vocab=pad(61, 8)", "dims.s=16"),
        lambda: {"tokens": ids(61, 2, 16), "segments": ids(2, 2, 16), "keep": keep()},
        {"tokens": "input_ids", "segments": "token_type_ids", "keep": "attention_mask"},
        ("prediction_logits", "seq_relationship_logits"),
    ),
    "t5": Case(
        "t5",
        "T5ForConditionalGeneration",
        {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4},
        (
            *SMALL, "dims.heads=4", "dims.hd=8", "dims.ff=48", "dims.vocab=64", "dims.src=16",
            "dims.tgt=8",
        ),
        lambda: {"tokens": ids(64, 2, 16), "keep": keep(), "inputs": ids(63, 2, 8)},
        {"tokens": "input_ids", "keep": "attention_mask", "inputs": "decoder_input_ids"},
    ),
    "mixtral": Case(
        "mixtral",
        "MixtralForCausalLM",
        {**DECODER, "rope_parameters": PLAIN_ROPE, "num_local_experts": 4},
        (*KV, "dims.experts=4"),
        lambda: {"tokens": ids(64, 2, 16)},
        {"tokens": "input_ids"},
    ),
    "vit": Case(
        "vit",
        "ViTForImageClassification",
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 128,
            "image_size": (6, 4),
            "patch_size": (2, 2),
            "num_labels": 12,
        },
        (*SMALL, "dims.heads=4", "dims.ny=3", "dims.nx=2", "dims.py=2", "dims.px=2",
         "dims.classes=12"),
        lambda: {
            "image": torch.randn(2, 3, 6, 4, generator=torch.Generator().manual_seed(3)).double()
        },
        {"image": "pixel_values"},
    ),
}  # fmt: skip


def random_model(case: Case, dtype: torch.dtype) -> nn.Module:
    """A model of theirs in eval mode whose norms and biases are not at their start values."""
    name = case.family.replace("LMHeadModel", "").split("For")[0]
    config = getattr(tf, f"{name}Config")(**case.config)
    config._experts_implementation = "eager"
    torch.manual_seed(0)
    model: nn.Module = getattr(tf, case.family)(config).eval().to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter) * 0.1
            parameter.copy_(noise if parameter.dim() > 1 else 1 + noise)
    return model


def ours(spec: Compiled, dtype: torch.dtype, folder: Path) -> nn.Module:
    module: nn.Module = build_module(make_plan(spec), dtype=dtype).eval()
    load(module, spec, folder)
    return module


def difference(case: Case, theirs: nn.Module, module: nn.Module, inputs: Inputs) -> float:
    """Largest difference of logits, relative to the largest logit."""
    given = {
        case.names[key]: value.long() if value.dtype == torch.bool else value
        for key, value in inputs.items()
    }
    with torch.no_grad():
        answer = theirs(**given)
        found = module(**inputs)
    found = found if isinstance(found, tuple) else (found,)
    assert len(found) == len(case.logits)
    worst = 0.0
    for name, logits in zip(case.logits, found, strict=True):
        wanted = getattr(answer, name)
        assert logits.shape == wanted.shape
        error = (logits - wanted).abs().max() / wanted.abs().max()
        worst = max(worst, error.item())
    return worst


def stored(folder: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= safetensors.load_file(file)
    return found


def assert_same_bits(one: Path, other: Path) -> None:
    first, second = stored(one), stored(other)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert tensor.dtype == second[name].dtype, name
        assert tensor.shape == second[name].shape, name
        assert torch.equal(tensor, second[name]), name


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_same_logits_and_the_same_file_back(case: Case, dtype: torch.dtype, tmp_path: Path) -> None:
    theirs = random_model(case, dtype)
    theirs.save_pretrained(tmp_path / "in")
    spec = compile_spec(model_path(case.model), overrides=(*case.overrides, *ONE_PROCESS))
    module = ours(spec, dtype, tmp_path / "in")
    inputs = {k: v.to(dtype) if v.is_floating_point() else v for k, v in case.inputs().items()}
    assert difference(case, theirs, module, inputs) < BOUNDS[dtype]

    placed = {t.stored for t in weight_map(spec, "hf").transfers()}
    assert placed == set(stored(tmp_path / "in"))
    save(module, spec, tmp_path / "out")
    assert_same_bits(tmp_path / "in", tmp_path / "out")


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_imported_spec_and_exported_folder(case: Case, tmp_path: Path) -> None:
    """Their folder to a spec to a folder that `transformers` loads: the same logits again."""
    theirs = random_model(case, torch.float32)
    theirs.save_pretrained(tmp_path / "in")
    spec = compile_spec(SourceFile("imported.giant", import_spec(tmp_path / "in")))
    module = ours(spec, torch.float32, tmp_path / "in")
    inputs = {k: v.float() if v.is_floating_point() else v for k, v in case.inputs().items()}
    assert difference(case, theirs, module, inputs) < BOUNDS[torch.float32]

    save(module, spec, tmp_path / "out")
    loaded = getattr(tf, case.family).from_pretrained(
        tmp_path / "out", output_loading_info=True, experts_implementation="eager"
    )
    again, info = loaded
    assert not info["missing_keys"] and not info["unexpected_keys"]
    given = {case.names[k]: v.long() if v.dtype == torch.bool else v for k, v in inputs.items()}
    with torch.no_grad():
        for name in case.logits:
            one, other = getattr(theirs(**given), name), getattr(again.eval()(**given), name)
            assert torch.equal(one, other)


@pytest.mark.parametrize("rope", [LLAMA3_ROPE, LINEAR_ROPE], ids=["llama3", "linear"])
def test_positions_past_a_thousand(rope: dict[str, Any], tmp_path: Path) -> None:
    """The scaled rope far from the start, in float32."""
    case = CASES["llama3"]
    config = {**case.config, "rope_parameters": rope, "num_hidden_layers": 1}
    long = replace(case, config=config)
    theirs = random_model(long, torch.float32)
    theirs.save_pretrained(tmp_path)
    spec = compile_spec(SourceFile("imported.giant", import_spec(tmp_path)))
    module = ours(spec, torch.float32, tmp_path)
    inputs = {"tokens": ids(64, 1, 1500)}
    assert difference(long, theirs, module, inputs) < BOUNDS[torch.float32]


def test_sliding_window_counts_as_theirs(tmp_path: Path) -> None:
    case = CASES["mixtral"]
    config = {**case.config, "sliding_window": 5, "num_experts_per_tok": 3}
    narrow = replace(case, config=config)
    theirs = random_model(narrow, torch.float64)
    theirs.save_pretrained(tmp_path)
    spec = compile_spec(SourceFile("imported.giant", import_spec(tmp_path)))
    module = ours(spec, torch.float64, tmp_path)
    assert difference(narrow, theirs, module, case.inputs()) < BOUNDS[torch.float64]


def test_tied_head_and_free_head_size(tmp_path: Path) -> None:
    """LLaMA 3.2 ties its head; some LLaMAs have heads of another size than width / heads."""
    case = CASES["llama3"]
    config = {**case.config, "tie_word_embeddings": True, "head_dim": 6}
    tied = replace(case, config=config)
    theirs = random_model(tied, torch.float64)
    theirs.save_pretrained(tmp_path / "in")
    spec = compile_spec(SourceFile("imported.giant", import_spec(tmp_path / "in")))
    module = ours(spec, torch.float64, tmp_path / "in")
    assert difference(tied, theirs, module, case.inputs()) < BOUNDS[torch.float64]
    save(module, spec, tmp_path / "out")
    assert_same_bits(tmp_path / "in", tmp_path / "out")
