"""A small language model as the emitter would write it, its plan, and endless data for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from giantdsl.attrs import Config
from giantdsl.plan import InputInfo, ParameterInfo, Plan
from giantdsl.runtime.rng import fold
from giantdsl.settings.values import TrainSettings
from giantdsl.train.data_protocol import Batch
from giantdsl.train.job import TrainJob

VOCAB = 11
SEQ = 8
WIDTH = 6

SOURCE = '''\
"""tiny: a model for tests."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def mix(x: Tensor) -> Tensor:
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


def dropout(x: Tensor, p: float, noise: Tensor | None) -> Tensor:
    if noise is None:
        return x
    places = torch.arange(x[0].numel(), device=x.device)
    words = mix(noise[:, None] * 31 + mix(places)).view(x.shape)
    keep = ((words >> 40) & 0xFFFFFF) >= p * 2**24
    return x * keep / (1 - p)


def normal(shape: tuple[int, ...], seed: int, number: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed * 1000 + number)
    return 0.3 * torch.randn(shape, generator=generator, dtype=torch.float64)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.mix = nn.Linear(6, 6)

    def forward(self, x: Tensor, noise: Tensor | None) -> Tensor:
        h = self.mix(self.norm(x)).cumsum(1)
        return x + dropout(F.gelu(h), 0.25, noise)


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tok = nn.Embedding(11, 6)
        self.decoder = nn.ModuleList([Layer() for _ in range(2)])
        self.head = nn.Linear(6, 11, bias=False)
        self.losses: dict[str, Tensor] = {}

    def init_weights(self, seed: int) -> None:
        with torch.no_grad():
            for number, (name, p) in enumerate(self.named_parameters()):
                if name.endswith("norm.weight"):
                    p.fill_(1.0)
                elif name.endswith("bias"):
                    p.zero_()
                else:
                    p.copy_(normal(tuple(p.shape), seed, number))

    def forward(self, tokens: Tensor, labels: Tensor | None = None, *, noise: Tensor | None = None) -> Tensor:
        if not self.training:
            noise = None
        x = self.tok(tokens)
        for i, layer in enumerate(self.decoder):
            x = layer(x, None if noise is None else noise + i)
        logits = self.head(x)
        self.losses = {}
        if labels is not None:
            flat = F.cross_entropy(
                logits.flatten(0, 1).float() if logits.dtype == torch.bfloat16 else logits.flatten(0, 1),
                labels.flatten(), ignore_index=-100, reduction="sum",
            )
            self.losses["lm"] = flat / (labels != -100).sum().clamp(min=1)
        return logits

    def loss_counts(self, labels: Tensor | None = None) -> dict[str, Tensor]:
        return {} if labels is None else {"lm": (labels != -100).sum()}
'''


def tiny_plan(source: str = SOURCE) -> Plan:
    """The plan of the model above."""
    shapes: dict[str, tuple[int, ...]] = {"tok.weight": (VOCAB, WIDTH)}
    for i in range(2):
        shapes |= {
            f"decoder.{i}.norm.weight": (WIDTH,),
            f"decoder.{i}.norm.bias": (WIDTH,),
            f"decoder.{i}.mix.weight": (WIDTH, WIDTH),
            f"decoder.{i}.mix.bias": (WIDTH,),
        }
    shapes["head.weight"] = (VOCAB, WIDTH)
    parameters = tuple(
        ParameterInfo(name, shape, 1.0, len(shape) > 1, None) for name, shape in shapes.items()
    )
    tokens = InputInfo("tokens", ("b", "s"), (None, SEQ), "vocab", VOCAB, (1,), False)
    return Plan(
        model="tiny",
        source=source,
        source_name="tiny.py",
        class_name="Tiny",
        inputs=(tokens, replace(tokens, name="labels", loss_only=True)),
        output_names=("logits",),
        parameters=parameters,
        num_parameters=sum(torch.Size(s).numel() for s in shapes.values()),
        losses=("lm",),
        counted=("lm",),
        recompute=(),
        flops=1,
        tokens_per_sample=SEQ,
    )


class Counting:
    """Endless samples: each counts up from its own start, some labels are not valid."""

    tokenizer = None
    tokens_per_byte = 0.5

    def __init__(self, num_samples: int | None = None, fingerprint: str = "counting") -> None:
        self.num_samples = num_samples
        self.fingerprint = fingerprint

    def batch(self, indices: Sequence[int]) -> Batch:
        starts = torch.tensor([fold(3, i) % VOCAB for i in indices])
        tokens = (starts[:, None] + torch.arange(SEQ + 1)) % VOCAB
        labels = tokens[:, 1:].clone()
        for row, index in enumerate(indices):
            labels[row, : index % SEQ] = -100
        return {"tokens": tokens[:, :-1], "labels": labels}

    def bytes_of(self, batch: Batch) -> int | None:
        return None


def call(name: str, **kwargs: Any) -> Config:
    return Config(name, (), tuple(kwargs.items()))


def tiny_settings(**changes: Any) -> TrainSettings:
    """Four steps of eight samples with AdamW, in microbatches of three."""
    settings: dict[str, Any] = {
        "batch": 8,
        "microbatch": 3,
        "steps": 4,
        "optimizer": call("adamw", betas=(0.9, 0.95), eps=1e-8, decay=0.1),
        "lr": call("cosine", peak=1e-2, warmup=2, floor=1e-3),
        "clip": 1.0,
        "seed": 7,
    }
    return TrainSettings(**(settings | changes))


def tiny_job(run_dir: Path, *, plan: Plan | None = None, **changes: Any) -> TrainJob:
    """A quiet run on the CPU. Changes that TrainJob knows go there, others to the settings."""
    names = TrainJob.__dataclass_fields__
    of_job = {k: v for k, v in changes.items() if k in names}
    of_settings = {k: v for k, v in changes.items() if k not in names}
    fields: dict[str, Any] = {
        "plan": plan or tiny_plan(),
        "settings": tiny_settings(**of_settings),
        "run_dir": run_dir,
        "base_dir": run_dir.parent,
        "device": "cpu",
        "quiet": True,
        "source": Counting(),
        "eval_source": Counting(40),
        "resolved_spec": "model tiny\n",
    }
    return TrainJob(**(fields | of_job))


def tensors_of(run_dir: Path, step: int) -> dict[str, Tensor]:
    """Every tensor of a checkpoint, the optimizer's too."""
    from safetensors.torch import load_file

    directory = run_dir / "checkpoints" / f"step-{step:08d}"
    return load_file(directory / "model.safetensors") | load_file(
        directory / "optimizer.safetensors"
    )
