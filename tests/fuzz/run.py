"""Many broken specs: `python -m tests.fuzz.run --count 20000 --seed 0`.

Each must end in diagnostics, a SettingsError or a plan, within 2 s of processor time. What does not
is printed with its seed; `--show SEED` prints a mutant.
"""

from __future__ import annotations

import argparse
import ast
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from giantdsl.driver import compile_spec, make_plan
from giantdsl.errors import SettingsError, SpecError
from giantdsl.ir.text import format_program, parse_program
from giantdsl.ir.verify import verify
from giantdsl.source import SourceFile

from .mutate import ROOT, mutant, spec_texts

LIMIT_S = 2.0
# Imports of a mutant are looked for beside it.
NAME = str(ROOT / "models" / "mutant.giant")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one mutant. `fault` is "" if it went as it must."""

    seed: int
    kind: str
    fault: str
    seconds: float


def try_compile(text: str) -> str:
    """ "errors", "settings" or "compiled"; anything else raised is a fault of ours."""
    try:
        compiled = compile_spec(SourceFile(NAME, text))
    except SpecError as error:
        assert str(error).startswith(("error[", "warning[")), str(error)
        return "errors"
    except SettingsError as error:
        assert str(error)
        return "settings"
    verify(compiled.program)
    shown = format_program(compiled.program)
    assert format_program(parse_program(shown)) == shown, "the text form does not round-trip"
    ast.parse(make_plan(compiled).source)
    return "compiled"


def attempt(seed: int, texts: Sequence[str], run: Callable[[str], str] = try_compile) -> Outcome:
    """Make a mutant and run it."""
    text = mutant(seed, texts)
    start = time.process_time()
    try:
        kind, fault = run(text), ""
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        kind, fault = "crash", f"{type(error).__name__} at {place}: {error}"
    seconds = time.process_time() - start
    if not fault and seconds > LIMIT_S:
        fault = f"took {seconds:.1f} s"
    return Outcome(seed, kind, fault, seconds)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--show", type=int, metavar="SEED", help="print a mutant and stop")
    args = parser.parse_args()
    texts = spec_texts()
    if args.show is not None:
        print(mutant(args.show, texts))
        return 0
    kinds: dict[str, int] = {}
    slowest = Outcome(args.seed, "", "", 0.0)
    num_faults = 0
    for seed in range(args.seed, args.seed + args.count):
        outcome = attempt(seed, texts)
        kinds[outcome.kind] = kinds.get(outcome.kind, 0) + 1
        slowest = max(slowest, outcome, key=lambda found: found.seconds)
        if outcome.fault:
            num_faults += 1
            print(f"seed {seed}: {outcome.fault}", flush=True)
    counts = ", ".join(f"{kinds[kind]} {kind}" for kind in sorted(kinds))
    print(f"{args.count} mutants: {counts}; {num_faults} faults")
    print(f"slowest: seed {slowest.seed}, {slowest.seconds:.2f} s")
    return 1 if num_faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
