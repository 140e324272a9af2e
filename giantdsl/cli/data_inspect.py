"""`giantdsl data inspect PREFIX`: what a pair of token files holds."""

from __future__ import annotations

import argparse
from pathlib import Path

from giantdsl.cli.data_prepare import tokenizer_named
from giantdsl.cli.exit_codes import DONE
from giantdsl.cli.terminal import write

EXAMPLE = "giantdsl data inspect data/books --tokenizer tokenizer.json"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prefix", metavar="PREFIX", help="the files without .bin and .idx")
    parser.add_argument("--tokenizer", metavar="T", help="show the beginning as text, too")


def run(args: argparse.Namespace) -> int:
    """Print counts, and the beginning of the first document."""
    from giantdsl.train.data import inspect

    found = inspect(Path(args.prefix))
    write(f"documents  {found.documents:,}")
    write(f"tokens     {found.tokens:,} ({found.dtype})")
    write(f"longest    {found.longest:,} tokens")
    write(f"empty      {found.empty:,} documents")
    write(f"begins     {' '.join(str(i) for i in found.sample)}")
    if args.tokenizer:
        from giantdsl.train.data.tokenizers import build_tokenizer

        tokenizer = build_tokenizer(tokenizer_named(args.tokenizer), Path(), Path(), None)
        write(f"as text    {tokenizer.decode(found.sample)!r}")
    return DONE
