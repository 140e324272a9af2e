"""Emitted source to modules, and the devices they go to."""

from __future__ import annotations

import inspect
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from giantdsl.errors import InternalError, SettingsError
from giantdsl.runtime.device import compute_dtype, deterministic, master_dtype, pick_device
from giantdsl.runtime.loader import build_module, load_source, lower_module
from tests.unit.train.tiny import SOURCE, tiny_plan


def test_the_module_has_the_plans_parameters_with_values_from_the_seed() -> None:
    plan = tiny_plan()
    one, same, other = (build_module(plan, seed=s) for s in (1, 1, 2))
    assert {n: tuple(p.shape) for n, p in one.named_parameters()} == {
        p.name: p.shape for p in plan.parameters
    }
    for name, value in one.state_dict().items():
        assert torch.equal(value, same.state_dict()[name])
    assert not torch.equal(one.state_dict()["tok.weight"], other.state_dict()["tok.weight"])


def test_floats_have_the_asked_type_and_lowering_keeps_what_the_spec_fixes() -> None:
    plan = tiny_plan()
    module = build_module(plan, dtype=torch.float64)
    assert {p.dtype for p in module.parameters()} == {torch.float64}
    first, *rest = plan.parameters
    lower_module(
        module, replace(plan, parameters=(replace(first, dtype="float32"), *rest)), torch.bfloat16
    )
    dtypes = {n: p.dtype for n, p in module.named_parameters()}
    assert dtypes.pop(first.name) == torch.float32
    assert set(dtypes.values()) == {torch.bfloat16}


def test_lowering_rounds_once() -> None:
    plan = tiny_plan()
    exact = build_module(plan).state_dict()["head.weight"].clone()
    module = build_module(plan)
    lower_module(module, plan, torch.bfloat16)
    assert torch.equal(module.state_dict()["head.weight"], exact.to(torch.bfloat16))


def test_a_tied_weight_stays_one_tensor() -> None:
    tied = SOURCE.replace(
        "        self.losses: dict[str, Tensor] = {}\n\n    def init",
        "        self.head.weight = self.tok.weight\n        self.losses = {}\n\n    def init",
    )
    assert tied != SOURCE
    plan = tiny_plan(tied)
    plan = replace(plan, parameters=plan.parameters[:-1])
    module = build_module(plan)
    assert module.head.weight is module.tok.weight


def test_tracebacks_and_inspect_show_the_emitted_lines() -> None:
    broken = SOURCE.replace("logits = self.head(x)", "logits = self.head(x) + missing_name")
    module = build_module(tiny_plan(broken))
    assert "class Tiny" in inspect.getsource(type(module))
    with pytest.raises(NameError) as caught:
        module(torch.zeros(1, 8, dtype=torch.long))
    assert "logits = self.head(x) + missing_name" in "".join(
        traceback.format_exception(caught.value)
    )


def test_two_modules_of_one_source_do_not_share_a_name() -> None:
    first, second = (load_source(SOURCE, "tiny.py") for _ in range(2))
    assert first.__name__ != second.__name__
    assert sys.modules[first.__name__] is first


def test_a_plan_that_differs_from_the_module_is_our_fault() -> None:
    plan = tiny_plan()
    with pytest.raises(InternalError, match=r"parameter `head.weight` is absent in the plan"):
        build_module(replace(plan, parameters=plan.parameters[:-1]))
    wrong = replace(plan.parameters[0], shape=(2, 2))
    with pytest.raises(InternalError, match=r"`tok.weight` is \(2, 2\) in the plan"):
        build_module(replace(plan, parameters=(wrong, *plan.parameters[1:])))


def test_a_parameter_that_init_weights_forgets_is_noticed() -> None:
    forgetful = SOURCE.replace("p.zero_()", "pass")
    with pytest.raises(InternalError, match=r"gave `decoder.0.norm.bias` no value"):
        build_module(tiny_plan(forgetful))


def test_externs_come_from_the_specs_directory(tmp_path: Path) -> None:
    (tmp_path / "my_ops_for_loader.py").write_text("def double(x):\n    return 2 * x\n")
    source = "from my_ops_for_loader import double\n"
    with pytest.raises(SettingsError, match="needs the Python module `my_ops_for_loader`"):
        load_source(source, "x.py")
    before = list(sys.path)
    assert load_source(source, "x.py", search_path=tmp_path).double(3) == 6
    assert sys.path == before


def test_devices_that_are_not_there_are_named() -> None:
    assert pick_device("cpu") == torch.device("cpu")
    with pytest.raises(SettingsError, match="`gpu` is not a device"):
        pick_device("gpu")
    if not torch.accelerator.is_available():
        assert pick_device(None) == torch.device("cpu")
        with pytest.raises(SettingsError, match="no device `cuda:0` here; this machine has only"):
            pick_device("cuda:0")


def test_precisions() -> None:
    assert compute_dtype("bf16") == torch.bfloat16
    assert master_dtype("bf16") == torch.float32
    assert master_dtype("float64") == torch.float64
    with pytest.raises(SettingsError, match="`fp8` is not one of `float32`"):
        compute_dtype("fp8")


def test_deterministic_kernels_are_asked_for_on_accelerators_only() -> None:
    with deterministic(torch.device("cpu")):
        assert not torch.are_deterministic_algorithms_enabled()
    with deterministic(torch.device("cuda")):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert not torch.are_deterministic_algorithms_enabled()
