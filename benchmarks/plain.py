"""Emitted code against hand-written code, side by side in one run.

    python benchmarks/plain.py [--repeats 7] [--small] [--out benchmarks/results/plain.json]

1. Forward and backward of GPT-2 (124M): the emitted module and `handwritten.py` on the same
   weights and batch, alternating, eager and compiled. Ratio = time by hand / time emitted; 1 is
   level, above 1 the emitted module is faster.
2. The whole `train` loop at the demo model's size against a bare loop over the same module,
   optimizer and batches. Ratio = time of the bare loop / time of ours.

Times are medians of alternating runs; the spread is (max - min) / median.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import platform
import statistics
import tempfile
import time
from collections.abc import Callable

import torch
from handwritten import GPT, copy_weights
from torch import Tensor, nn
from train_loop import bare_seconds, our_seconds

from giantdsl.driver import compile_spec, make_plan
from giantdsl.runtime.loader import build_module

ROOT = pathlib.Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    ours_s: float
    peer_s: float
    ratio: float
    spread: float
    repeats: int


def alternate(name: str, ours: Callable[[], None], peer: Callable[[], None], repeats: int) -> Row:
    """Run both in turn after a warm-up; the order flips each time."""
    times: dict[str, list[float]] = {"ours": [], "peer": []}
    pairs = [("ours", ours), ("peer", peer)]
    for _, run in pairs:
        run()
        run()
    for i in range(repeats):
        for which, run in pairs if i % 2 == 0 else reversed(pairs):
            start = time.perf_counter()
            run()
            times[which].append(time.perf_counter() - start)
    a, b = (statistics.median(times[k]) for k in ("ours", "peer"))
    ratios = [p / o for o, p in zip(times["ours"], times["peer"], strict=True)]
    spread = (max(ratios) - min(ratios)) / statistics.median(ratios)
    return Row(name, a, b, b / a, spread, repeats)


def gpt2(repeats: int, small: bool, dropout: bool) -> list[Row]:
    """Forward and backward, the same weights in both."""
    overrides = ["parallel.dp=1", "parallel.tp=1", "parallel.pp=1"]
    if small:
        overrides += ["dims.d=256", "dims.heads=8", "dims.layers=4", "dims.vocab=4096"]
    plan = make_plan(compile_spec(ROOT / "models/gpt2.giant", overrides=overrides))
    emitted = build_module(plan, "cpu", seed=0, dtype=torch.float32)
    state = emitted.state_dict()
    vocab, dim = state["tok.weight"].shape
    layers = 1 + max(int(k.split(".")[1]) for k in state if k.startswith("decoder."))
    hand = GPT(vocab, 1024, dim, 8 if small else 12, layers, 0.1 if dropout else 0.0)
    copy_weights(hand, state)
    emitted.train(dropout)
    hand.train(dropout)
    batch = (torch.randint(vocab, (2, 256)), torch.randint(vocab, (2, 256)))
    if not dropout:
        check_equal(emitted, hand, batch)
    rows = []
    suffix = " with dropout" if dropout else ""
    for mode in ("eager", "compiled"):
        ours, peer = emitted_step(emitted), hand
        if mode == "compiled":
            ours, peer = torch.compile(ours), torch.compile(hand)
        rows.append(
            alternate(
                f"gpt2 forward+backward {mode}{suffix}",
                lambda f=ours, m=emitted: backward(f, m, batch),
                lambda f=peer, m=hand: backward(f, m, batch),
                repeats,
            )
        )
    return rows


def emitted_step(module: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    def loss(tokens: Tensor, labels: Tensor) -> Tensor:
        module(tokens, labels)
        return module.losses["lm"]

    return loss


def backward(
    step: Callable[[Tensor, Tensor], Tensor], module: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    module.zero_grad(set_to_none=True)
    step(*batch).backward()


def check_equal(emitted: nn.Module, hand: GPT, batch: tuple[Tensor, Tensor]) -> None:
    """A benchmark of two different functions would say nothing."""
    with torch.no_grad():
        a, b = emitted_step(emitted)(*batch), hand(*batch)
    assert torch.allclose(a, b, rtol=1e-5), (a, b)


def loop(repeats: int, steps: int) -> Row:
    """`giantdsl train` of the demo against a bare loop: same module, optimizer, batches."""
    compiled = compile_spec(ROOT / "models/demo.giant")
    ours, peer = [], []
    with tempfile.TemporaryDirectory() as directory:
        cache = pathlib.Path(directory)
        for i in range(repeats):
            for which in ("ours", "peer") if i % 2 == 0 else ("peer", "ours"):
                if which == "ours":
                    ours.append(our_seconds(compiled, cache, steps))
                else:
                    peer.append(bare_seconds(compiled, cache, steps))
    ratios = [p / o for o, p in zip(ours, peer, strict=True)]
    spread = (max(ratios) - min(ratios)) / statistics.median(ratios)
    a, b = statistics.median(ours), statistics.median(peer)
    return Row(f"train loop, demo size, s a step of {steps}", a, b, b / a, spread, repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--small", action="store_true", help="a small GPT-2, for a quick look")
    parser.add_argument("--only", choices=("gpt2", "dropout", "loop"))
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    rows: list[Row] = []
    if args.only in (None, "gpt2"):
        rows += gpt2(args.repeats, args.small, dropout=False)
    if args.only in (None, "dropout"):
        rows += gpt2(args.repeats, args.small, dropout=True)
    if args.only in (None, "loop"):
        rows.append(loop(args.repeats, args.steps))
    width = max(len(row.name) for row in rows)
    print(f"{'what':{width}}  ours s  peer s  ratio  spread")
    for row in rows:
        print(
            f"{row.name:{width}}  {row.ours_s:6.3f}  {row.peer_s:6.3f}  {row.ratio:5.3f}"
            f"  {row.spread:6.1%}"
        )
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        record = {
            "date": time.strftime("%Y-%m-%d"),
            "machine": platform.processor() or platform.machine(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "rows": [dataclasses.asdict(row) for row in rows],
        }
        args.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
