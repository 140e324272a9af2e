"""`giantdsl fmt FILE…`: canonical layout, comments kept."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from giantdsl.cli.exit_codes import DONE, FAILED, WRONG_INPUT
from giantdsl.cli.parser import UsageError
from giantdsl.cli.terminal import say, say_diagnostics, say_error
from giantdsl.diagnostics import Sink
from giantdsl.errors import SettingsError, SpecError
from giantdsl.source import SourceFile
from giantdsl.syntax import read_source
from giantdsl.syntax.format import format_text

EXAMPLE = "giantdsl fmt models/gpt2.giant\ngiantdsl fmt --check models/"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help=".giant files or folders of them; `-` is stdin"
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing, exit 1 if a file would change"
    )
    parser.add_argument("--diff", action="store_true", help="write nothing, show what would change")


def run(args: argparse.Namespace) -> int:
    """Format every file that parses; complain about the others."""
    if "-" in args.files:
        if len(args.files) > 1:
            raise UsageError("`-` stands alone; see `giantdsl fmt --help`")
        return _format_stdin(args)
    code, changed, total = DONE, 0, 0
    for path in _specs(args.files):
        total += 1
        try:
            is_changed = _format_file(path, args)
        except SpecError as error:
            say_diagnostics(error.diagnostics)
            code = WRONG_INPUT
            continue
        except SettingsError as error:
            say_error(str(error))
            code = WRONG_INPUT
            continue
        changed += is_changed
    would = "would change" if args.check or args.diff else "changed"
    say(f"{changed} of {total} file{'s' if total != 1 else ''} {would}")
    return code or (FAILED if changed and args.check else DONE)


def _specs(names: list[str]) -> Iterator[Path]:
    for name in names:
        path = Path(name)
        if path.is_dir():
            found = sorted(path.rglob("*.giant"))
            if not found:
                raise UsageError(f"no .giant file in `{name}`")
            yield from found
        else:
            yield path


def _format_file(path: Path, args: argparse.Namespace) -> bool:
    sink = Sink()
    source = read_source(path, sink)
    sink.raise_if_errors()
    assert source is not None, "a file that cannot be read is reported"
    text = _formatted(source)
    with path.open(encoding="utf-8", newline="") as file:
        is_changed = file.read() != text
    if not is_changed:
        return False
    if args.diff:
        _show_diff(source, text)
    elif args.check:
        say(f"would change {path}")
    else:
        _replace(path, text)
    return True


def _format_stdin(args: argparse.Namespace) -> int:
    data = sys.stdin.buffer.read()
    try:
        source = SourceFile("<stdin>", data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise SettingsError("stdin is not UTF-8 text") from None
    text = _formatted(source)
    is_changed = text != data.decode("utf-8")
    if args.diff:
        _show_diff(source, text)
    elif not args.check:
        sys.stdout.write(text)
    return FAILED if is_changed and args.check else DONE


def _show_diff(source: SourceFile, text: str) -> None:
    lines = difflib.unified_diff(
        source.text.splitlines(keepends=True),
        text.splitlines(keepends=True),
        source.name,
        f"{source.name} (formatted)",
    )
    for line in lines:
        sys.stdout.write(line if line.endswith("\n") else f"{line}\n\\ no newline at end of file\n")


def _replace(path: Path, text: str) -> None:
    """Whole or not at all; a link stays a link, the file keeps its mode."""
    target = path.resolve()
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with beside.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
        beside.chmod(target.stat().st_mode & 0o777)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def _formatted(source: SourceFile) -> str:
    """The canonical text. Raises SpecError for a file that does not parse."""
    sink = Sink()
    text = format_text(source, sink)
    sink.raise_if_errors()
    assert text is not None, "a file without errors has a layout"
    return text
