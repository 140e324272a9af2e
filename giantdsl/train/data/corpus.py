"""Text files to documents, and documents to token files that are kept."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from giantdsl.errors import SettingsError
from giantdsl.train.data.indexed import Tokens, Writer, read_tokens
from giantdsl.train.data.tokenizers import Tokenizers

_BATCH = 256
_NOT_LIBRARY = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idlelib", "__pycache__"}
)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Text files in a fixed order. `key` is the field of a `.jsonl` line that holds the text."""

    files: tuple[Path, ...]
    key: str = "text"

    def fingerprint(self) -> str:
        """Changes with the content, not with names or places."""
        total = hashlib.sha256(self.key.encode())
        for path in self.files:
            total.update(hashlib.sha256(path.read_bytes()).digest())
        return total.hexdigest()[:16]

    def documents(self) -> Iterator[str]:
        """A document for each file, or for each line of a `.jsonl`."""
        for path in self.files:
            if path.suffix == ".jsonl":
                yield from _json_lines(path, self.key)
            else:
                yield path.read_text("utf-8", errors="replace")


def _json_lines(path: Path, key: str) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as error:
                raise SettingsError(f"{path}:{number}: not JSON: {error}") from error
            text = record.get(key) if isinstance(record, dict) else None
            if not isinstance(text, str):
                raise SettingsError(f"{path}:{number}: no text under `{key}`")
            yield text


def find_files(patterns: Sequence[str], base_dir: Path) -> tuple[Path, ...]:
    """The files that patterns name, sorted. Raises SettingsError for one that names none."""
    found: dict[Path, None] = {}
    for pattern in patterns:
        hits = sorted(glob.glob(str(base_dir / pattern), recursive=True))
        files = [Path(hit) for hit in hits if Path(hit).is_file()]
        if not files:
            raise SettingsError(f"no file fits `{pattern}` in {base_dir}")
        found.update(dict.fromkeys(files))
    return tuple(found)


def stdlib_files() -> tuple[Path, ...]:
    """The standard library's own modules, without its tests and without installed packages."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = [
        path
        for path in root.rglob("*.py")
        if not _NOT_LIBRARY.intersection(path.relative_to(root).parts[:-1])
    ]
    return tuple(sorted(files))


def tokenized(corpus: Corpus, tokenizer: Tokenizers, cache_dir: Path) -> tuple[Tokens, int]:
    """The corpus as token files, made once and kept, and how many bytes of text it has."""
    key = f"{corpus.fingerprint()}-{tokenizer.fingerprint}"
    prefix, facts = cache_dir / f"tokens-{key}", cache_dir / f"tokens-{key}.json"
    if not facts.is_file():
        cache_dir.mkdir(parents=True, exist_ok=True)
        num_bytes = _write(corpus, tokenizer, prefix)
        unfinished = facts.with_name(f".{facts.name}.{os.getpid()}")
        unfinished.write_text(json.dumps({"bytes": num_bytes}))
        os.replace(unfinished, facts)
    return read_tokens(prefix), int(json.loads(facts.read_text())["bytes"])


def _write(corpus: Corpus, tokenizer: Tokenizers, prefix: Path) -> int:
    writer = Writer(prefix, tokenizer.vocab_size)
    end = [] if tokenizer.end_of_document is None else [tokenizer.end_of_document]
    num_bytes = 0
    try:
        for texts in _batched(corpus.documents()):
            num_bytes += sum(len(text.encode(errors="replace")) for text in texts)
            for ids in tokenizer.encode_many(texts):
                writer.add([*ids, *end])
        writer.close()
    except BaseException:
        writer.abandon()
        raise
    return num_bytes


def _batched(texts: Iterator[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
