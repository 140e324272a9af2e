"""`giantdsl doctor`: what is installed, what is missing, how to get it."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
from dataclasses import asdict, dataclass

from giantdsl import __version__
from giantdsl.cli.exit_codes import DONE, FAILED
from giantdsl.cli.terminal import write

EXAMPLE = "giantdsl doctor\ngiantdsl doctor --json"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked for. `needed`: nothing works without it."""

    what: str
    found: str
    ok: bool
    needed: bool
    help: str = ""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Print all findings; 1 if something is missing that nothing works without."""
    findings = [_python(), *_packages(), _accelerator(), _compiler(), _backend()]
    if args.json:
        write(json.dumps({"version": __version__, "findings": [asdict(f) for f in findings]}))
    else:
        write(f"giantdsl {__version__}")
        width = max(len(f.what) for f in findings)
        for f in findings:
            mark = "ok     " if f.ok else "MISSING" if f.needed else "none   "
            write(f"  {mark} {f.what:{width}}  {f.found}" + (f"; {f.help}" if f.help else ""))
    return FAILED if any(f.needed and not f.ok for f in findings) else DONE


def _python() -> Finding:
    version = platform.python_version()
    return Finding("python", f"{version}, {os.cpu_count()} cores", True, True)


def _packages() -> list[Finding]:
    wanted = {
        "torch": (True, "pip install torch"),
        "numpy": (True, "pip install numpy"),
        "safetensors": (True, "pip install safetensors"),
        "rich": (True, "pip install rich"),
        "tokenizers": (False, "for bpe and tokenizer.json: pip install 'giantdsl[text]'"),
        "transformers": (False, "to compare with Hugging Face: pip install 'giantdsl[hf]'"),
        "tensorboard": (False, "for log = [tensorboard]: pip install 'giantdsl[tensorboard]'"),
    }
    found = []
    for name, (needed, help) in wanted.items():
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found.append(Finding(name, "not installed", False, needed, help))
        else:
            found.append(Finding(name, version, True, needed))
    return found


def _accelerator() -> Finding:
    try:
        import torch
    except ImportError as error:
        return Finding("accelerator", f"torch does not import: {error}", False, False)
    if not torch.accelerator.is_available():
        return Finding("accelerator", "none, the CPU is used", False, False)
    kind = torch.accelerator.current_accelerator()
    return Finding("accelerator", f"{torch.accelerator.device_count()} x {kind}", True, False)


def _compiler() -> Finding:
    """torch.compile needs one on the CPU, and so does the giant backend."""
    from giantdsl.backends.giant.build import find_compiler

    path = find_compiler()
    help = "" if path else "for the giant backend, and compile = true on a CPU: install g++"
    return Finding("C++ compiler", str(path or "none"), path is not None, False, help)


def _backend() -> Finding:
    """Over what ranks talk on the CPU: giant, or gloo where it cannot be built."""
    from giantdsl.backends.giant.probe import capability

    what, giant = "CPU backend", capability()
    if giant.library is not None:
        return Finding(what, f"giant, {giant.library}", True, False)
    if giant.why_not is not None:
        return Finding(what, f"gloo: {giant.why_not}", False, False)
    if giant.failed is not None:
        help = "`--backend giant` tries again"
        return Finding(what, f"gloo: giant did not build, see {giant.failed}", False, False, help)
    return Finding(what, "giant, built at first use: about a minute", True, False)
