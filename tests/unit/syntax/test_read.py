"""Files to sources."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from giantdsl.diagnostics import Sink
from giantdsl.errors import SettingsError
from giantdsl.syntax import read as read_module
from giantdsl.syntax import read_source


def _write(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "a.giant"
    path.write_bytes(data)
    return path


def test_text_under_the_name_it_is_shown_by(tmp_path: Path) -> None:
    sink = Sink()
    path = _write(tmp_path, "# é\r\nmodel a".encode())
    source = read_source(path, sink, "specs/a.giant")
    assert source is not None and not sink.diagnostics
    assert (source.name, source.text) == ("specs/a.giant", "# é\r\nmodel a")
    plain = read_source(path, sink)
    assert plain is not None and plain.name == str(path)


def test_a_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    source = read_source(_write(tmp_path, b"\xef\xbb\xbfmodel a"), Sink())
    assert source is not None and source.text == "model a"


@pytest.mark.parametrize(
    ("data", "line", "column", "label"),
    [
        (b"model a\n# caf\xe9 x\n", 2, 6, "byte 0xe9"),
        (b"\xff\xfem\x00o\x00", 1, 4, "zero byte"),
        (b"model a\n\x00", 2, 1, "zero byte"),
        (b"\xef\xbb\xbfm\xff", 1, 3, "byte 0xff"),
        (b"model a\n\xc3", 2, 1, "byte 0xc3"),
    ],
)
def test_what_is_not_utf_8_is_a_diagnostic_at_its_place(
    tmp_path: Path, data: bytes, line: int, column: int, label: str
) -> None:
    sink = Sink()
    assert read_source(_write(tmp_path, data), sink) is None
    (found,) = sink.diagnostics
    assert found.code == "G022" and label in found.primary.text
    assert (found.line, found.column) == (line, column)
    assert str(found)


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no file `.*missing\.giant`"):
        read_source(tmp_path / "missing.giant", Sink())
    with pytest.raises(SettingsError, match="is a directory"):
        read_source(tmp_path, Sink())
    with pytest.raises(SettingsError, match="cannot read"):
        read_source(tmp_path / "a.giant" / "b", Sink()) if _write(tmp_path, b"") else None
    with pytest.raises(SettingsError, match="cannot read"):
        read_source(Path("a\0b"), Sink())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = _write(tmp_path, b"model a")
    path.chmod(0)
    with pytest.raises(SettingsError, match="cannot read"):
        read_source(path, Sink())


def test_a_file_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_module, "MAX_SIZE_BYTES", 1024 * 1024)
    path = _write(tmp_path, b"#" * (1024 * 1024))
    assert read_source(path, Sink()) is not None
    with pytest.raises(SettingsError, match="larger than 1 MiB"):
        read_source(_write(tmp_path, b"#" * (1024 * 1024 + 1)), Sink())
