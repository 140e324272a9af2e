"""Files to `SourceFile`s."""

from __future__ import annotations

from pathlib import Path

from giantdsl.diagnostics import Diagnostic, Label, Sink
from giantdsl.errors import SettingsError
from giantdsl.source import SourceFile

# 100,000 long lines. A spec has a hundred; parsing takes some 70 bytes of memory a byte.
MAX_SIZE_BYTES = 16 * 1024 * 1024


def read_source(path: Path, sink: Sink, shown: str | None = None) -> SourceFile | None:
    """The spec at `path` under the name `shown` (default: the path as given).

    A byte order mark is dropped; line ends stay as they are. Text that is not UTF-8 is G022, and
    None is returned. Raises SettingsError where there is no file to read, or one too large.
    """
    name = shown if shown is not None else str(path)
    data = _read(path, name)
    if b"\0" in data:
        sink.add(_not_text(name, data, data.index(b"\0"), "a zero byte: is this a spec?"))
        return None
    try:
        return SourceFile(name, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        # `utf-8-sig` counts from behind a byte order mark.
        start = error.start + (3 if data.startswith(b"\xef\xbb\xbf") else 0)
        sink.add(_not_text(name, data, start, f"byte 0x{data[start]:02x}"))
        return None


def _read(path: Path, name: str) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SIZE_BYTES + 1)
    except FileNotFoundError:
        raise SettingsError(f"no file `{name}`") from None
    except IsADirectoryError:
        raise SettingsError(f"`{name}` is a directory; name a `.giant` file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SettingsError(f"cannot read `{name}`: {reason.lower()}") from None
    if len(data) > MAX_SIZE_BYTES:
        limit = MAX_SIZE_BYTES // (1024 * 1024)
        raise SettingsError(f"`{name}` is larger than {limit} MiB, too large for a spec")
    return data


def _not_text(name: str, data: bytes, at: int, label: str) -> Diagnostic:
    before = data[:at].decode("utf-8", errors="replace")
    line_start = before.rfind("\n") + 1
    end = data.find(b"\n", at)
    line = data[at : end if end >= 0 else len(data)][:200].decode("utf-8", errors="replace")
    source = SourceFile(name, before[:line_start] + before[line_start:] + line)
    return Diagnostic(
        "G022",
        "the file is not UTF-8 text",
        Label(source.span(len(before), len(before) + 1), label),
        "save it as UTF-8 in your editor, or run `iconv -t UTF-8` over it",
    )
