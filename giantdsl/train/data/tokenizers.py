"""Text to token ids and back."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from giantdsl.attrs import Config
from giantdsl.errors import SettingsError

END_OF_DOCUMENT = "<|endoftext|>"
SPECIALS = (END_OF_DOCUMENT, "[PAD]", "[CLS]", "[SEP]", "[MASK]")


class ByteTokenizer:
    """Each byte of UTF-8 is a token; NUL ends a document."""

    vocab_size = 256
    end_of_document: int | None = 0
    fingerprint = "byte"

    def encode(self, text: str, /) -> list[int]:
        return list(text.encode())

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int], /) -> str:
        return bytes(i for i in ids if 0 < i < 256).decode(errors="replace")

    def special(self, *names: str) -> int | None:
        return None

    def token_bytes(self) -> npt.NDArray[np.int64]:
        """How many bytes of text each token stands for."""
        sizes = np.ones(256, dtype=np.int64)
        sizes[0] = 0
        return sizes


class FastTokenizer:
    """A tokenizer of the `tokenizers` library."""

    def __init__(self, inner: Any, fingerprint: str) -> None:
        self._inner = inner
        self.fingerprint = fingerprint
        self.vocab_size: int = inner.get_vocab_size(with_added_tokens=True)
        names = (END_OF_DOCUMENT, "</s>", "[SEP]", "<|end_of_text|>", "<eos>")
        self.end_of_document = self.special(*names)

    def encode(self, text: str, /) -> list[int]:
        ids: list[int] = self._inner.encode(text, add_special_tokens=False).ids
        return ids

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """The same for many texts at once, on all cores."""
        found = self._inner.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in found]

    def decode(self, ids: Sequence[int], /) -> str:
        text: str = self._inner.decode(list(ids), skip_special_tokens=True)
        return text

    def special(self, *names: str) -> int | None:
        """The id of the first of these tokens that exists."""
        found = (self._inner.token_to_id(name) for name in names)
        return next((i for i in found if i is not None), None)

    def token_bytes(self) -> npt.NDArray[np.int64] | None:
        """How many bytes of text each token stands for; None where that depends on neighbours."""
        decoder = type(self._inner.decoder).__name__
        if decoder != "ByteLevel":
            return None
        sizes = np.zeros(self.vocab_size, dtype=np.int64)
        specials = {t.content for t in self._inner.get_added_tokens_decoder().values()}
        for token, i in self._inner.get_vocab(with_added_tokens=True).items():
            sizes[i] = 0 if token in specials else len(token)
        return sizes


Tokenizers = ByteTokenizer | FastTokenizer


def build_tokenizer(
    config: Config | None,
    base_dir: Path,
    cache_dir: Path,
    corpus: Callable[[], tuple[str, Iterable[str]]] | None,
) -> Tokenizers:
    """The tokenizer a setting names.

    `corpus` gives (its hash, its texts) where one can be trained on it. Raises SettingsError.
    """
    if config is None or config.name == "byte":
        return ByteTokenizer()
    library = _library()
    if config.name == "bpe":
        if corpus is None:
            raise SettingsError(
                "`tokenizer = bpe(…)` is trained on text, and this data has none; "
                "name a tokenizer.json"
            )
        return _trained(library, int(_argument(config, "vocab")), cache_dir, corpus)
    if config.name == "file":
        path = base_dir / str(_argument(config, "path"))
        return _opened(library, path)
    return _named(library, str(_argument(config, "name")), base_dir)


def _argument(config: Config, name: str) -> Any:
    value = config.get(name, config.args[0] if config.args else None)
    if value is None:
        raise SettingsError(f"`tokenizer = {config.name}(…)` needs `{name}`")
    return value


def _library() -> Any:
    try:
        import tokenizers
    except ModuleNotFoundError:
        raise SettingsError(
            "this tokenizer needs the `tokenizers` package: pip install 'giantdsl[text]'; "
            "`tokenizer = byte` works without"
        ) from None
    return tokenizers


def _opened(library: Any, path: Path) -> FastTokenizer:
    if not path.is_file():
        raise SettingsError(f"{path}: no such tokenizer file")
    try:
        inner = library.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise SettingsError(f"{path}: not a tokenizer.json: {error}") from error
    return FastTokenizer(inner, hashlib.sha256(path.read_bytes()).hexdigest()[:16])


def _named(library: Any, name: str, base_dir: Path) -> FastTokenizer:
    """A folder with a tokenizer.json, or a name the Hugging Face cache of this machine knows."""
    folder = base_dir / name
    if (folder / "tokenizer.json").is_file():
        return _opened(library, folder / "tokenizer.json")
    try:
        from huggingface_hub import try_to_load_from_cache
    except ModuleNotFoundError:
        found: Any = None
    else:
        found = try_to_load_from_cache(name, "tokenizer.json")
    if isinstance(found, str):
        return _opened(library, Path(found))
    raise SettingsError(
        f'tokenizer "{name}" is not on this machine: no folder {folder} with a tokenizer.json and '
        "nothing in the Hugging Face cache; download it, or use byte or bpe(vocab=…)"
    )


def _trained(
    library: Any, vocab: int, cache_dir: Path, corpus: Callable[[], tuple[str, Iterable[str]]]
) -> FastTokenizer:
    """Byte-level BPE (Sennrich 2016), trained once for a corpus and size."""
    if vocab < 256 + len(SPECIALS):
        raise SettingsError(
            f"`bpe(vocab={vocab})` is too small: 256 bytes and {len(SPECIALS)} special tokens "
            f"make {256 + len(SPECIALS)}"
        )
    key, texts = corpus()
    path = cache_dir / f"bpe-{vocab}-{key}.json"
    if not path.is_file():
        inner = library.Tokenizer(library.models.BPE())
        inner.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = library.decoders.ByteLevel()
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocab,
            special_tokens=list(SPECIALS),
            initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        inner.train_from_iterator(texts, trainer)
        cache_dir.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        inner.save(str(unfinished))
        os.replace(unfinished, path)
    return _opened(library, path)
