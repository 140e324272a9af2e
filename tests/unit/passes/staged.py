"""Models cut into stages, and both run in one process."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from giantdsl import resources
from giantdsl.driver import compile_spec
from giantdsl.emit import emit_module
from giantdsl.ir.nodes import Program
from giantdsl.ir.types import BOOL, FLOAT, INT, AxisKind, base_axis
from giantdsl.ir.verify import verify
from giantdsl.passes.cut_stages import StageProgram, cut_stages
from giantdsl.runtime.loader import load_source
from giantdsl.settings.values import ParallelSettings

_ROWS = 3
_serial = itertools.count()


@dataclass(frozen=True, slots=True)
class Outcome:
    """Loss terms by name, model outputs by name, gradients by logical name."""

    losses: dict[str, Tensor]
    outputs: dict[str, Tensor]
    gradients: dict[str, Tensor]


def compiled(name: str, *overrides: str) -> tuple[Program, ParallelSettings]:
    """A model of `models/` in its tiny profile."""
    profiles = [] if name == "demo" else ["tiny"]
    spec = compile_spec(resources.model_path(name), profiles=profiles, overrides=overrides)
    return spec.program, spec.settings.parallel or ParallelSettings()


def cut(
    program: Program, parallel: ParallelSettings, **changes: object
) -> tuple[StageProgram, ...]:
    stages = cut_stages(program, replace(parallel, **changes))  # type: ignore[arg-type]
    for stage in stages:
        verify(stage.program)
    return stages


def batch(program: Program, seed: int = 0) -> dict[str, Tensor]:
    """Random inputs and the noise of a batch."""
    generator = torch.Generator().manual_seed(seed)
    made: dict[str, Tensor] = {}
    for value in program.forward.params:
        axes = [program.axes[base_axis(axis)] for axis in value.type.axes]
        sizes = [_ROWS if a.kind is AxisKind.BATCH else int(str(a.extent)) for a in axes]
        if value.type.dtype == FLOAT:
            made[value.name] = torch.rand(sizes, generator=generator, dtype=torch.float64)
        elif value.type.dtype == BOOL:
            made[value.name] = torch.rand(sizes, generator=generator) < 0.8
        else:
            top = 9 if value.type.dtype == INT else program.axes[value.type.dtype].extent
            made[value.name] = torch.randint(int(str(top)), sizes, generator=generator)
    made["noise"] = torch.randint(2**62, (_ROWS,), generator=generator)
    return made


def module_of(program: Program) -> nn.Module:
    emitted = emit_module(program, source_name="spec.giant", runnable=False)
    space = load_source(emitted.source, f"staged{next(_serial)}.py")
    module: nn.Module = getattr(space, emitted.class_name)().double()
    module.init_weights(3)  # type: ignore[operator]
    return module.train()


def run_whole(program: Program, inputs: Mapping[str, Tensor]) -> Outcome:
    module = module_of(program)
    returned = _called(module, program, inputs)
    names = [value.name for value in program.forward.results]
    losses: dict[str, Tensor] = dict(module.losses)  # type: ignore[arg-type]
    _weighted(losses).backward()
    gradients = {n: p.grad for n, p in module.named_parameters() if p.grad is not None}
    outputs = dict(zip(names, returned, strict=True))
    return Outcome(_detached(losses), _detached(outputs), gradients)


def run_stages(stages: Sequence[StageProgram], inputs: Mapping[str, Tensor]) -> Outcome:
    """One after another, then backward in the other order, with nothing shared but what is sent."""
    losses: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}
    kept: list[tuple[nn.Module, dict[str, Tensor], dict[str, Tensor], Tensor | None]] = []
    arriving: dict[str, Tensor] = {}
    for stage in stages:
        received: dict[str, Tensor] = {}
        for crossing in stage.receives:
            tensor = arriving[crossing.name].detach()
            assert not crossing.grad or tensor.is_floating_point(), crossing.name
            received[crossing.name] = tensor.requires_grad_(crossing.grad)
        module = module_of(stage.program)
        given = {name: inputs[name] for name in stage.inputs}
        returned = _called(module, stage.program, given | received | {"noise": inputs["noise"]})
        made = dict(zip(stage.makes, returned, strict=False))
        outputs.update(zip(stage.outputs, returned[len(stage.makes) :], strict=True))
        terms: dict[str, Tensor] = dict(module.losses)  # type: ignore[arg-type]
        assert tuple(terms) == stage.losses or set(terms) == set(stage.losses)
        for name, term in terms.items():
            losses[name] = losses.get(name, torch.zeros((), dtype=torch.float64)) + term.detach()
        arriving = {name: made[name] if name in made else received[name] for name in stage.sends}
        kept.append((module, received, arriving, _weighted(terms) if terms else None))
    gradients: dict[str, Tensor] = defaultdict(lambda: torch.zeros((), dtype=torch.float64))
    coming: dict[str, Tensor] = {}
    for module, received, sent, total in reversed(kept):
        roots = [(sent[name], gradient) for name, gradient in coming.items()]
        roots += (
            [] if total is None or not total.requires_grad else [(total, torch.ones_like(total))]
        )
        torch.autograd.backward([t for t, _ in roots], [g for _, g in roots])
        for name, parameter in module.named_parameters():
            if parameter.grad is not None:
                gradients[name] = gradients[name] + parameter.grad
        coming = {n: t.grad for n, t in received.items() if t.requires_grad and t.grad is not None}
    return Outcome(losses, _detached(outputs), dict(gradients))


def assert_equal(whole: Outcome, staged: Outcome) -> None:
    """Every loss, output and gradient to 1e-12."""
    for left, right in (
        (whole.losses, staged.losses),
        (whole.outputs, staged.outputs),
        (whole.gradients, staged.gradients),
    ):
        assert set(left) == set(right)
        for name, tensor in left.items():
            torch.testing.assert_close(right[name], tensor, rtol=1e-12, atol=1e-12)


def _called(module: nn.Module, program: Program, given: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """The results as a tuple, however many there are."""
    noise = {"noise"} if program.forward.draws else set()
    returned = module(**{n: t for n, t in given.items() if n != "noise" or n in noise})
    count = len(program.forward.results)
    if count == 1:
        return (returned,)
    return tuple(returned) if count else ()


def _weighted(losses: Mapping[str, Tensor]) -> Tensor:
    """Losses with different weights, so that none stands in for another."""
    total = torch.zeros((), dtype=torch.float64)
    for name, term in losses.items():
        total = total + (1 + sum(map(ord, name)) % 7) * term
    return total


def _detached(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in tensors.items()}
