"""argparse, as every command uses it: misuse is one line, help ends with an example."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from giantdsl.errors import SettingsError


class UsageError(SettingsError):
    """The command line is wrong."""


class CommandParser(argparse.ArgumentParser):
    """The parser of one command. Raises UsageError instead of printing and leaving."""

    def __init__(self, command: str, summary: str, example: str) -> None:
        self.command = command
        super().__init__(
            prog=f"giantdsl {command}",
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=f"example:\n{_indented(example)}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `giantdsl {self.command} --help`")

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Flags may stand anywhere between the positional arguments."""
        return self.parse_intermixed_args(list(arguments))


def _indented(example: str) -> str:
    return "\n".join(f"  {line}" for line in example.splitlines())


def add_spec(parser: argparse.ArgumentParser) -> None:
    """SPEC, what changes it: profiles, a plan file, overrides."""
    parser.add_argument("spec", metavar="SPEC", help="a .giant file")
    add_changes(parser)


def add_changes(parser: argparse.ArgumentParser) -> None:
    """Profiles, a plan file and overrides, as every command that compiles a spec takes them."""
    parser.add_argument(
        "overrides",
        metavar="key=value",
        nargs="*",
        default=[],
        help="override a size or a setting: dims.layers=2 train.steps=20",
    )
    parser.add_argument(
        "--profile",
        metavar="NAME",
        action="append",
        default=[],
        help="apply a `profile` section of the spec; may be repeated, later wins",
    )
    parser.add_argument(
        "--plan-file", metavar="FILE", help="a file whose `parallel` section is used instead"
    )
