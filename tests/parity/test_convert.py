"""What `convert` writes is what `train` runs: the same values, losses and gradients, bit for bit."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from giantdsl.cli.main import main
from giantdsl.driver import compile_spec, make_plan
from giantdsl.plan import InputInfo
from giantdsl.resources import model_names, model_path
from giantdsl.runtime.loader import build_module

OPS = Path(__file__).parents[1] / "ops"
MODELS = [name for name in model_names() if name != "demo"]


def converted(name: str, folder: Path) -> Path:
    path = folder / f"{name}.py"
    assert main(["convert", str(model_path(name)), "--profile", "tiny", "-o", str(path)]) == 0
    return path


def imported(path: Path, class_name: str) -> nn.Module:
    spec = importlib.util.spec_from_file_location(f"converted_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    space = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(space)
    module: nn.Module = getattr(space, class_name)()
    module.init_weights(3)  # type: ignore[operator]
    return module


def random_input(info: InputInfo, generator: torch.Generator) -> Tensor:
    shape = [2 if size is None else size for size in info.sizes]
    if info.num_classes is not None:
        return torch.randint(0, info.num_classes, shape, generator=generator)
    if info.dtype == "bool":
        return torch.ones(shape, dtype=torch.bool)
    return torch.rand(shape, generator=generator)


def results(module: nn.Module, inputs: dict[str, Tensor]) -> list[Tensor]:
    outputs = module.train()(**inputs)
    losses = list(module.losses.values())
    torch.stack(losses).sum().backward()
    found = list(outputs) if isinstance(outputs, tuple) else [outputs]
    return [*found, *losses, *(p.grad for p in module.parameters() if p.grad is not None)]


@pytest.mark.parametrize("name", MODELS)
def test_forward_loss_and_gradients_are_those_that_train_computes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(OPS))
    plan = make_plan(compile_spec(model_path(name), profiles=["tiny"]))
    trained = build_module(plan, seed=3, search_path=OPS)
    file = imported(converted(name, tmp_path), plan.class_name)
    generator = torch.Generator().manual_seed(0)
    inputs = {info.name: random_input(info, generator) for info in plan.inputs}
    if "noise" in plan.source.split("def forward")[-1].split("->")[0]:
        inputs["noise"] = torch.tensor([5, 6])
    ours, theirs = results(trained, inputs), results(file, inputs)
    assert len(ours) == len(theirs) > 10
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_the_file_runs_by_itself_without_giantdsl(tmp_path: Path) -> None:
    path = converted("gpt2", tmp_path)
    program = "import sys; sys.modules['giantdsl'] = None; import runpy; runpy.run_path(sys.argv[1], run_name='__main__')"
    # Where giantdsl is installed, torch loads its backend by an entry point; where it is not, there is none.
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False,
        cwd=tmp_path, env=env,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"gpt2: [\d,]+ parameters", done.stdout)
    assert "output [2, " in done.stdout and re.search(r"loss lm \d", done.stdout)


def test_weights_beside_the_file(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    spec = str(model_path("gpt2"))
    weights = tmp_path / "w"
    path = tmp_path / "gpt2.py"
    arguments = ["convert", spec, "--profile", "tiny", "-o", str(path), "--weights", str(weights)]
    assert main([*arguments, "--seed", "3"]) == 0
    plan = make_plan(compile_spec(model_path("gpt2"), profiles=["tiny"]))
    state = imported(path, plan.class_name).state_dict()
    stored = load_file(str(weights / "model.safetensors"))
    assert stored.keys() == state.keys()
    assert all(torch.equal(stored[name], state[name]) for name in state)
