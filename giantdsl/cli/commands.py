"""The commands by name. Their modules are imported only when they are used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Command:
    """A module of this package with `EXAMPLE`, `configure(parser)` and `run(args) -> exit code`."""

    module: str
    summary: str


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "check": Command("check", "say what is wrong with a spec, or how large the model is"),
        "fmt": Command("fmt", "put specs in canonical layout"),
        "show": Command("show", "show the compiler's steps: ast, ir, plan, source or schedule"),
        "convert": Command("convert", "write the model as one plain PyTorch file"),
        "train": Command("train", "train the model"),
        "verify": Command("verify", "prove that many ranks compute what one process computes"),
        "eval": Command("evaluate", "loss and perplexity of a checkpoint"),
        "generate": Command("generate", "write text with a checkpoint"),
        "data prepare": Command("data_prepare", "turn text or JSONL into a token file"),
        "data inspect": Command("data_inspect", "show what a token file holds"),
        "hf import": Command("hf_import", "turn a Hugging Face configuration into a spec"),
        "hf export": Command("hf_export", "write a checkpoint as Hugging Face reads it"),
        "bench": Command("bench", "measure collectives side by side with gloo"),
        "explain": Command("explain", "explain a diagnostic at length"),
        "new": Command("new", "write a starter spec"),
        "doctor": Command("doctor", "say what is installed and what is missing"),
    }
)

NOT_BUILT = ("plan", "probe", "lsp")
"""Commands of later versions: known by name, so that they are not taken for typing mistakes."""
