"""`giantdsl COMMAND …`: find the command, run it, turn what it raises into an exit code.

0: done. 1: the work failed. 2: the user's input is wrong. A signal: 128 and its number.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from giantdsl import __version__
from giantdsl.cli.commands import COMMANDS, NOT_BUILT
from giantdsl.cli.exit_codes import DONE, FAILED, INTERRUPTED, WRONG_INPUT
from giantdsl.cli.parser import CommandParser, UsageError
from giantdsl.cli.terminal import say_diagnostics, say_error, write
from giantdsl.diagnostics import did_you_mean
from giantdsl.errors import GiantError, InternalError, SettingsError, SpecError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough. What is left in the buffer must not be flushed at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    return code


def _run(words: list[str]) -> int:
    try:
        return _dispatch(words)
    except SpecError as error:
        say_diagnostics(error.diagnostics)
        return WRONG_INPUT
    except SettingsError as error:
        say_error(str(error))
        return WRONG_INPUT
    except (InternalError, RecursionError) as error:
        return _our_fault(error)
    except (GiantError, MemoryError) as error:
        say_error(str(error) or "out of memory")
        return FAILED
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f" `{error.filename}`" if error.filename else ""
        say_error(f"{(error.strerror or str(error)).lower()}{where}")
        return FAILED
    except KeyboardInterrupt:
        say_error("interrupted")
        return INTERRUPTED
    except Exception as error:
        return _our_fault(error)


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        write(_overview())
        return DONE if words else WRONG_INPUT
    if words[0] in ("-V", "--version"):
        write(f"giantdsl {__version__}")
        return DONE
    name, rest = _find(words)
    command = COMMANDS[name]
    module = importlib.import_module(f"giantdsl.cli.{command.module}")
    parser = CommandParser(name, command.summary, module.EXAMPLE)
    module.configure(parser)
    code: int = module.run(parser.parse(rest))
    return code


def _find(words: list[str]) -> tuple[str, list[str]]:
    """The command's name, of one word or two, and what follows it."""
    first = words[0]
    if first in COMMANDS:
        return first, words[1:]
    seconds = [name.split()[1] for name in COMMANDS if name.split()[0] == first]
    if seconds:
        second = words[1] if len(words) > 1 else ""
        if second in seconds:
            return f"{first} {second}", words[2:]
        choices = " or ".join(f"`giantdsl {first} {word}`" for word in seconds)
        raise UsageError(f"`giantdsl {first}` needs a second word: {choices}")
    if first in NOT_BUILT:
        raise UsageError(f"`giantdsl {first}` is not built yet in version {__version__}")
    known = {name.split()[0] for name in COMMANDS}
    help_ = did_you_mean(first, known, "`giantdsl --help` lists what there is")
    raise UsageError(f"no command `{first}`; {help_}")


def _overview() -> str:
    rows = "\n".join(f"  {name:<13} {command.summary}" for name, command in COMMANDS.items())
    later = ", ".join(NOT_BUILT)
    return (
        "usage: giantdsl COMMAND …\n\n"
        "Transformers in a small language, compiled to readable PyTorch.\n\n"
        f"{rows}\n\n"
        f"not built yet: {later}\n"
        "`giantdsl COMMAND --help` says more and shows an example.\n"
    )


def _our_fault(error: BaseException) -> int:
    # What describes a crash is imported when there is one: start-up is felt, a crash is rare.
    from giantdsl.cli.crash import describe_crash

    say_error(describe_crash(error))
    return FAILED
