"""`giantdsl data prepare FILES -o PREFIX --tokenizer T`: text to token files."""

from __future__ import annotations

import argparse
import glob
import sys
from pathlib import Path

from giantdsl.attrs import Config
from giantdsl.cli.exit_codes import DONE
from giantdsl.cli.parser import UsageError
from giantdsl.cli.terminal import say

EXAMPLE = (
    "giantdsl data prepare books/*.txt -o data/books --tokenizer tokenizer.json\n"
    "giantdsl data prepare web.jsonl -o data/web --tokenizer bpe:8192"
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="text files, or .jsonl with a document a line"
    )
    parser.add_argument(
        "-o", "--output", metavar="PREFIX", required=True, help="PREFIX.bin and .idx"
    )
    parser.add_argument(
        "--tokenizer",
        metavar="T",
        required=True,
        help="byte, bpe:SIZE (trained on the files), a tokenizer.json, or a Hugging Face name",
    )
    parser.add_argument("--key", metavar="NAME", default="text", help="field of a .jsonl line")
    parser.add_argument(
        "--no-end", action="store_true", help="no end-of-document token after each document"
    )


def run(args: argparse.Namespace) -> int:
    """Write the pair of files and say what is in them."""
    files = [Path(f) for name in args.files for f in (sorted(glob.glob(name)) or [name])]
    from rich.console import Console
    from rich.progress import Progress

    from giantdsl.train.data import prepare

    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("tokens", total=None)
        made = prepare(
            files,
            Path(args.output),
            tokenizer_named(args.tokenizer),
            key=args.key,
            append_end=not args.no_end,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    say(f"wrote {args.output}.bin and .idx: {made.documents:,} documents, {made.tokens:,} tokens")
    return DONE


def tokenizer_named(text: str) -> Config:
    """`byte`, `bpe:8192`, `path/tokenizer.json`, `gpt2`."""
    if text == "byte":
        return Config("byte")
    if text.startswith("bpe:"):
        size = text.removeprefix("bpe:")
        if not size.isdigit():
            raise UsageError(f"`--tokenizer {text}` is written bpe:8192")
        return Config("bpe", (), (("vocab", int(size)),))
    if text.endswith(".json"):
        return Config("file", (), (("path", text),))
    return Config("hf", (), (("name", text),))
