"""`giantdsl data prepare` and `data inspect`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from giantdsl.attrs import Config
from giantdsl.errors import SettingsError
from giantdsl.train.data.corpus import Corpus
from giantdsl.train.data.indexed import Writer, prefix_of, read_tokens
from giantdsl.train.data.tokenizers import build_tokenizer

Progress = Callable[[int, int], None]
"""Called with (bytes of text so far, bytes of all files)."""

_SHOWN = 32


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a pair of token files holds. `sample` is the beginning of the first document."""

    documents: int
    tokens: int
    dtype: str
    longest: int
    empty: int
    sample: tuple[int, ...]


def prepare(
    files: Sequence[Path],
    prefix: Path,
    tokenizer: Config,
    *,
    key: str = "text",
    append_end: bool = True,
    progress: Progress | None = None,
) -> Inspection:
    """Write `prefix.bin` and `prefix.idx` from text or JSONL files, a document each file or line.

    Nothing appears under these names before all is written. Raises SettingsError.
    """
    missing = [path for path in files if not path.is_file()]
    if missing or not files:
        raise SettingsError(f"{missing[0]}: no such file" if missing else "no files to prepare")
    corpus = Corpus(tuple(files), key)
    cache = prefix.parent / ".giantdsl"
    tokens = build_tokenizer(
        tokenizer, Path(), cache, lambda: (corpus.fingerprint(), corpus.documents())
    )
    total = sum(path.stat().st_size for path in files)
    writer = Writer(prefix_of(prefix), tokens.vocab_size)
    end = [] if tokens.end_of_document is None or not append_end else [tokens.end_of_document]
    done, written = 0, 0
    try:
        for text in corpus.documents():
            written += writer.add([*tokens.encode(text), *end])
            done += len(text.encode(errors="replace"))
            if progress is not None:
                progress(min(done, total), total)
        if written == 0:
            raise SettingsError("the files hold no text: nothing was written")
        writer.close()
    except BaseException:
        writer.abandon()
        raise
    return inspect(prefix)


def inspect(prefix: Path) -> Inspection:
    """What is in `prefix.bin` and `prefix.idx`. Raises SettingsError where they are damaged."""
    found = read_tokens(prefix_of(prefix))
    sample: tuple[int, ...] = ()
    if len(found.lengths):
        start = int(found.starts[0])
        stop = start + min(_SHOWN, int(found.lengths[0]))
        sample = tuple(int(i) for i in found.tokens[start:stop])
    return Inspection(
        documents=len(found.lengths),
        tokens=found.num_tokens,
        dtype=str(found.tokens.dtype),
        longest=int(found.lengths.max()) if len(found.lengths) else 0,
        empty=int((found.lengths == 0).sum()),
        sample=sample,
    )
