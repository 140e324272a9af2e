"""Checkpoints into modules and back, on programs made by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from giantdsl.errors import SettingsError
from giantdsl.hf import export, load, save
from giantdsl.ir.nodes import Program
from giantdsl.ir.parameters import iter_parameters
from giantdsl.syntax import ast

from ..weights.made import (
    GPT_MAP,
    function,
    gpt,
    linear,
    op,
    parse_weights,
    program,
    weight,
)


@dataclass
class Spec:
    program: Program
    weight_maps: dict[str, ast.Weights]


def spec_of(of: Program, text: str = GPT_MAP) -> Spec:
    return Spec(of, {"hf": parse_weights(text)})


def module_of(of: Program, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Module:
    """A module that has the program's parameters and nothing else."""
    generator = torch.Generator().manual_seed(seed)
    root = nn.Module()
    for parameter in iter_parameters(of):
        *path, leaf = parameter.name.split(".")
        at = root
        for step in path:
            if step not in at._modules:
                at.add_module(step, nn.Module())
            child = at.get_submodule(step)
            at = child
        value = torch.randn(parameter.shape, generator=generator).to(dtype)
        at.register_parameter(leaf, nn.Parameter(value))
    return root


def stored(folder: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= load_file(file)
    return found


def same(one: nn.Module, other: nn.Module) -> bool:
    left, right = one.state_dict(), other.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save(module_of(gpt()), spec_of(gpt()), tmp_path)
    return tmp_path


def change(folder: Path, **changes: Tensor | None) -> None:
    """Rewrite a checkpoint with some tensors set, or taken out; `__` in a name is a dot."""
    tensors = stored(folder)
    for key, value in changes.items():
        name = key.replace("__", ".")
        if value is None:
            del tensors[name]
        else:
            tensors[name] = value
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_there_and_back_is_the_same_bits(tmp_path: Path, dtype: torch.dtype) -> None:
    spec, first = spec_of(gpt()), module_of(gpt(), dtype=dtype)
    save(first, spec, tmp_path / "a")
    second = module_of(gpt(), seed=1, dtype=dtype)
    assert not same(first, second)
    load(second, spec, tmp_path / "a")
    assert same(first, second)
    save(second, spec, tmp_path / "b")
    a, b = (tmp_path / x / "model.safetensors" for x in "ab")
    assert a.read_bytes() == b.read_bytes()


def test_what_is_stored_where(saved: Path) -> None:
    of = module_of(gpt()).state_dict()
    tensors = stored(saved)
    assert tensors["t.wte.weight"].shape == (10, 6)
    assert torch.equal(tensors["t.wte.weight"], of["tok.weight"])
    fused = tensors["t.h.2.c_attn.weight"]
    for i, name in enumerate("qkv"):
        wanted = of[f"decoder.2.attention.{name}.weight"].T
        assert torch.equal(fused[:, 6 * i : 6 * i + 6], wanted)
    wanted = torch.cat([of[f"decoder.2.attention.{name}.bias"] for name in "qkv"])
    assert torch.equal(tensors["t.h.2.c_attn.bias"], wanted)
    assert torch.equal(tensors["t.h.0.c_proj.weight"], of["decoder.0.attention.out.weight"].T)
    assert torch.equal(tensors["cls.bias"], of["head.bias"])
    assert "cls.weight" not in tensors


def test_fused_by_head(tmp_path: Path) -> None:
    """NeoX and BLOOM keep q, k and v of one head together."""
    of = program(function("forward", *(linear(n, "heads hd", "d", bias=True) for n in "qkv")))
    module = module_of(of)
    save(module, spec_of(of, 'weights hf { (q, k, v) = "qkv" [(heads _ hd), d] }'), tmp_path)
    weights = [module.get_parameter(f"{n}.weight").view(2, 3, 6) for n in "qkv"]
    wanted = torch.cat([w[head] for head in range(2) for w in weights])
    assert torch.equal(stored(tmp_path)["qkv.weight"], wanted)
    biases = [module.get_parameter(f"{n}.bias").view(2, 3) for n in "qkv"]
    wanted = torch.cat([b[head] for head in range(2) for b in biases])
    assert torch.equal(stored(tmp_path)["qkv.bias"], wanted)


def test_experts_apart_and_together(tmp_path: Path) -> None:
    of = program(function("forward", linear("w", "ff", "d", "experts", bias=True)))
    module = module_of(of)
    text = """weights hf {
      w.weight = "e.{experts}.w"
      w.bias = "b" [(ff experts)]
    }"""
    save(module, spec_of(of, text), tmp_path)
    tensors = stored(tmp_path)
    assert sorted(tensors) == ["b", "e.0.w", "e.1.w", "e.2.w", "e.3.w"]
    assert torch.equal(tensors["e.3.w"], module.get_parameter("w.weight")[3])
    assert torch.equal(tensors["b"], module.get_parameter("w.bias").T.flatten())
    other = module_of(of, seed=1)
    load(other, spec_of(of, text), tmp_path)
    assert same(module, other)


def test_fused_experts(tmp_path: Path) -> None:
    """gate and up of all experts in one tensor, and one tensor an expert."""
    of = program(function("forward", *(linear(n, "ff", "d", "experts") for n in ("gate", "up"))))
    module = module_of(of)
    for n, text in enumerate(
        [
            'weights hf { (gate, up) = "gu" [experts, d, (_ ff)] }',
            'weights hf { (gate, up) = "gu.{experts}" [(_ ff), d] }',
            'weights hf { (gate, up) = "gu" [(_ experts ff), d] }',
        ]
    ):
        folder = tmp_path / str(n)
        save(module, spec_of(of, text), folder)
        other = module_of(of, seed=1)
        load(other, spec_of(of, text), folder)
        assert same(module, other)
    both = stored(tmp_path / "0")["gu.weight"]
    assert torch.equal(both[1, :, 8:], module.get_parameter("up.weight")[1].T)


def test_bare_parameters_and_unit_dimensions(tmp_path: Path) -> None:
    of = program(function("forward", op("pos", weight("pos", "", "s d"))))
    module = module_of(of)
    plain, unit = 'weights hf { pos = "p" }', 'weights hf { pos = "p" [one, s, d] }'
    save(module, spec_of(of, unit), tmp_path)
    assert stored(tmp_path)["p"].shape == (1, 5, 6)
    for text in (plain, unit):
        other = module_of(of, seed=1)
        load(other, spec_of(of, text), tmp_path)
        assert same(module, other)


def test_exporting_a_file_of_parameters(tmp_path: Path, saved: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    save_file(dict(module_of(gpt()).state_dict()), run / "weights.safetensors")
    export(spec_of(gpt()), run / "weights.safetensors", tmp_path / "a")
    export(spec_of(gpt()), run, tmp_path / "b")
    wanted = (saved / "model.safetensors").read_bytes()
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == wanted
    assert (tmp_path / "b" / "model.safetensors").read_bytes() == wanted
    with pytest.raises(SettingsError, match="no safetensors file"):
        export(spec_of(gpt()), tmp_path / "nothing", tmp_path / "c")
    other = module_of(gpt(layers=2))
    save_file(dict(other.state_dict()), run / "weights.safetensors")
    with pytest.raises(SettingsError, match=r"no parameter `decoder\.2\."):
        export(spec_of(gpt()), run, tmp_path / "c")


def test_values_take_the_dtype_of_the_parameter(saved: Path) -> None:
    other = module_of(gpt(), seed=1, dtype=torch.bfloat16)
    load(other, spec_of(gpt()), saved)
    wanted = module_of(gpt()).get_parameter("tok.weight").to(torch.bfloat16)
    assert torch.equal(other.get_parameter("tok.weight"), wanted)


def test_saving_in_another_dtype(tmp_path: Path) -> None:
    save(module_of(gpt()), spec_of(gpt()), tmp_path, dtype=torch.bfloat16)
    assert {t.dtype for t in stored(tmp_path).values()} == {torch.bfloat16}


def test_shards_and_what_an_earlier_save_left(tmp_path: Path) -> None:
    spec, module = spec_of(gpt()), module_of(gpt())
    save(module, spec, tmp_path, shard_bytes=1000)
    files = sorted(p.name for p in tmp_path.glob("*.safetensors"))
    assert len(files) > 2 and files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == set(files)
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in stored(tmp_path).values())
    other = module_of(gpt(), seed=1)
    load(other, spec, tmp_path)
    assert same(module, other)
    save(module, spec, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


# ---- checkpoints that are not quite the spec's ------------------------------------------------


def test_padded_rows_are_dropped(saved: Path) -> None:
    table = stored(saved)["t.wte.weight"]
    change(saved, t__wte__weight=torch.cat([table, torch.full((2, 6), 9.0)]))
    other = module_of(gpt(), seed=1)
    load(other, spec_of(gpt()), saved)
    assert same(module_of(gpt()), other)


def refused(folder: Path) -> str:
    """What loading says; the module is as it was."""
    module = module_of(gpt(), seed=1)
    with pytest.raises(SettingsError) as caught:
        load(module, spec_of(gpt()), folder)
    assert same(module, module_of(gpt(), seed=1))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("rows", [9, 11, 13])
def test_other_numbers_of_rows_are_refused(saved: Path, rows: int) -> None:
    change(saved, t__wte__weight=torch.zeros(rows, 6))
    message = refused(saved)
    assert f"`t.wte.weight` has shape [{rows}, 6]" in message
    assert "needs [10, 6], or padded [12, 6]" in message


def test_a_transposed_tensor_is_refused(saved: Path) -> None:
    change(saved, t__h__1__c_fc__weight=stored(saved)["t.h.1.c_fc.weight"].T.contiguous())
    message = refused(saved)
    assert "`t.h.1.c_fc.weight` has shape [6, 8]" in message
    assert "`decoder.1.up.weight` of the spec needs [8, 6]" in message


def test_missing_tensors_are_named(saved: Path) -> None:
    change(saved, t__h__1__c_fc__weight=None, cls__bias=None)
    assert "has no `cls.bias`, `t.h.1.c_fc.weight`" in refused(saved)


def test_tensors_nobody_reads_are_named(saved: Path) -> None:
    change(saved, t__h__3__c_fc__weight=torch.zeros(8, 6), adapter=torch.zeros(2))
    assert "has `adapter`, `t.h.3.c_fc.weight`, which" in refused(saved)


def test_integers_are_refused(saved: Path) -> None:
    change(saved, cls__bias=torch.zeros(10, dtype=torch.int64))
    assert "`cls.bias` is of type I64" in refused(saved)


def test_tables_of_old_versions_are_passed_over(saved: Path) -> None:
    change(
        saved,
        t__h__0__attn__bias=torch.ones(1, 1, 4, 4, dtype=torch.bool),
        t__h__0__attn__masked_bias=torch.tensor(-1e4),
        t__embeddings__position_ids=torch.arange(4),
        t__layers__0__self_attn__rotary_emb__inv_freq=torch.ones(3),
    )
    load(module_of(gpt()), spec_of(gpt()), saved)


def test_a_tied_weight_may_be_there_twice_if_it_is_the_same(saved: Path) -> None:
    table = stored(saved)["t.wte.weight"]
    change(saved, lm_head__weight=table.clone())
    load(module_of(gpt()), spec_of(gpt()), saved)
    other = table.clone()
    other[3, 3] = torch.nextafter(other[3, 3], torch.tensor(9.0))
    change(saved, lm_head__weight=other)
    assert "has `lm_head.weight`, which" in refused(saved)


def test_equal_values_do_not_excuse_a_weight_that_is_not_tied(saved: Path) -> None:
    change(saved, stray=stored(saved)["t.h.0.c_fc.bias"].clone())
    assert "has `stray`, which" in refused(saved)


def test_a_bare_model_leaves_its_prefix_out(tmp_path: Path) -> None:
    of = program(function("forward", linear("a", "ff", "d"), linear("b", "d", "ff")))
    spec = spec_of(of, 'weights hf { a = "model.a"; b = "model.b" }')
    module = module_of(of)
    save(module, spec, tmp_path)
    tensors = {k.removeprefix("model."): v for k, v in stored(tmp_path).items()}
    save_file(tensors, tmp_path / "model.safetensors")
    other = module_of(of, seed=1)
    load(other, spec, tmp_path)
    assert same(module, other)


def test_old_names_of_norms(tmp_path: Path) -> None:
    norm = op("n", weight("n", "weight", "d"), weight("n", "bias", "d"))
    of = program(function("forward", norm))
    spec = spec_of(of, 'weights hf { n = "a.LayerNorm" }')
    module = module_of(of)
    old = {"a.LayerNorm.gamma": module.get_parameter("n.weight").data}
    old["a.LayerNorm.beta"] = module.get_parameter("n.bias").data
    save_file(old, tmp_path / "model.safetensors")
    other = module_of(of, seed=1)
    load(other, spec, tmp_path)
    assert same(module, other)


def test_a_module_of_another_spec_is_refused(saved: Path) -> None:
    with pytest.raises(SettingsError, match=r"no parameter `decoder\.2\.norm\.weight`"):
        load(module_of(gpt(layers=2)), spec_of(gpt()), saved)
    extra = module_of(gpt())
    extra.register_parameter("extra", nn.Parameter(torch.zeros(1)))
    with pytest.raises(SettingsError, match="the spec has no parameter `extra`"):
        load(extra, spec_of(gpt()), saved)
    other = module_of(gpt())
    other.get_submodule("head").bias = nn.Parameter(torch.zeros(9))
    with pytest.raises(SettingsError, match=r"`head\.bias` has shape \[9\]"):
        load(other, spec_of(gpt()), saved)
    with pytest.raises(SettingsError, match=r"`head\.bias` has shape \[9\]"):
        save(other, spec_of(gpt()), saved)
    with pytest.raises(SettingsError, match="no memory"):
        load(module_of(gpt()).to("meta"), spec_of(gpt()), saved)


def test_a_spec_without_that_map_is_refused(saved: Path) -> None:
    with pytest.raises(SettingsError, match="no `weights old` section; it has `weights hf`"):
        load(module_of(gpt()), spec_of(gpt()), saved, name="old")


def test_an_unknown_program_is_written_without_configuration(saved: Path) -> None:
    assert not (saved / "config.json").exists()
