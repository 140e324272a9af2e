"""The demo's training by `giantdsl.train.run` and by a bare loop over the same pieces."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import tempfile
import time

import torch

from giantdsl.driver import Compiled, make_plan
from giantdsl.runtime.loader import build_module
from giantdsl.settings.values import TrainSettings
from giantdsl.train import TrainJob, run
from giantdsl.train.data import build_source

WARM = 3


def settings_of(compiled: Compiled, steps: int) -> TrainSettings:
    """The demo's own settings, cut to `steps` and to what both loops do."""
    settings = compiled.settings.train
    assert settings is not None
    return dataclasses.replace(settings, steps=steps, save=None, eval=None)


def our_seconds(compiled: Compiled, cache: pathlib.Path, steps: int) -> float:
    """Seconds a step, first steps left out, as the run itself measured them."""
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        (folder / "cache").symlink_to(cache)
        job = TrainJob(
            plan=make_plan(compiled),
            settings=settings_of(compiled, steps),
            run_dir=folder,
            base_dir=folder,
            resume="never",
            quiet=True,
        )
        run(job)
        lines = (folder / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    seconds = [row["seconds"] for row in rows]
    return (seconds[-1] - seconds[WARM - 1]) / (len(seconds) - WARM)


def bare_seconds(compiled: Compiled, cache: pathlib.Path, steps: int) -> float:
    """Seconds a step of what an expert writes for one model: no checks, no records."""
    plan, settings = make_plan(compiled), settings_of(compiled, steps)
    source = build_source(settings, plan.inputs, cache, split="train", cache_dir=cache)
    module = build_module(plan, "cpu", seed=settings.seed, dtype=torch.float32).train()
    optimizer = torch.optim.AdamW(
        module.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    times = []
    for step in range(steps):
        start = time.perf_counter()
        first = step * settings.batch
        batch = source.batch(range(first, first + settings.batch))
        optimizer.zero_grad(set_to_none=True)
        module(**batch)
        loss = module.losses["lm"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        loss.item()
        times.append(time.perf_counter() - start)
    return sum(times[WARM:]) / len(times[WARM:])
