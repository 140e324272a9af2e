"""Settings to a source of samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from giantdsl.attrs import Config
from giantdsl.errors import SettingsError
from giantdsl.plan import InputInfo
from giantdsl.settings.values import TrainSettings
from giantdsl.train.data.corpus import Corpus, find_files, stdlib_files, tokenized
from giantdsl.train.data.images import ImageSource
from giantdsl.train.data.indexed import Tokens, prefix_of, read_tokens
from giantdsl.train.data.language import LanguageSource
from giantdsl.train.data.masked import MaskedSource
from giantdsl.train.data.other import BlendSource, PythonSource, SyntheticSource
from giantdsl.train.data.spans import SpanSource
from giantdsl.train.data.stream import Split, Stream, make_stream
from giantdsl.train.data.tokenizers import Tokenizers, build_tokenizer
from giantdsl.train.data_protocol import Source


@dataclass(frozen=True, slots=True)
class Place:
    """What every source is built with."""

    tokenizer: Config | None
    inputs: tuple[InputInfo, ...]
    base_dir: Path
    cache_dir: Path
    split: Split
    seed: int


@dataclass(frozen=True, slots=True)
class Text:
    """Token files and what is known of the text behind them."""

    files: tuple[Tokens, ...]
    tokenizer: Tokenizers | None
    tokens_per_byte: float | None
    identity: str


def build_source(
    settings: TrainSettings,
    inputs: tuple[InputInfo, ...],
    base_dir: Path,
    *,
    split: Split,
    cache_dir: Path,
) -> Source:
    """The source of `train.data`, or of `eval`'s own `data` for the split "eval".

    Without data of its own, evaluation takes what is held out from the training data.
    Raises SettingsError for whatever is wrong with the data or does not fit the model.
    """
    data = settings.data
    if split == "eval" and settings.eval is not None:
        own = settings.eval.get("data")
        if isinstance(own, Config):
            data, split = own, "all"
    if data is None:
        raise SettingsError("`train` has no `data`; say where samples come from: data = stdlib()")
    place = Place(settings.tokenizer, inputs, base_dir, cache_dir, split, settings.seed)
    return _source(data, place)


def argument(config: Config, name: str, position: int, default: Any = None) -> Any:
    """An argument by name or by position."""
    value = config.get(name)
    if value is None and position < len(config.args):
        value = config.args[position]
    return default if value is None else value


def _source(data: Config, place: Place) -> Source:
    shuffled = place.split == "train"
    common: dict[str, Any] = {"seed": place.seed, "shuffled": shuffled}
    if data.name in ("text", "stdlib", "megatron"):
        text, stream = _text(data, place)
        return LanguageSource(
            stream,
            place.inputs,
            pack=bool(argument(data, "pack", 9, False)),
            identity=f"{text.identity}|{place.split}",
            tokenizer=text.tokenizer,
            tokens_per_byte=text.tokens_per_byte,
            **common,
        )
    if data.name in ("mlm", "span_corruption"):
        return _objective(data, place, common)
    if data.name == "synthetic":
        return SyntheticSource(place.inputs, int(argument(data, "samples", 0, 4096)), **common)
    if data.name == "blend":
        ratio = argument(data, "ratio", 0)
        parts = {k: _source(as_source(v), place) for k, v in data.kwargs if k != "ratio"}
        if not parts or ratio is None:
            raise SettingsError("`blend(…)` takes sources by name and ratio=[…]")
        return BlendSource(parts, [float(r) for r in ratio], seed=place.seed)
    if data.name == "images":
        folder = place.base_dir / str(argument(data, "folder", 0))
        augment = argument(data, "augment", 1) if shuffled else None
        return ImageSource(folder, place.inputs, augment=augment, **common)
    if data.name == "python":
        return PythonSource(
            str(argument(data, "target", 0)), place.inputs, place.base_dir, **common
        )
    raise SettingsError(f"no data source `{data.name}`")


def as_source(value: Any) -> Config:
    """A source, also where it was written as a bare string."""
    if isinstance(value, Config):
        return value
    texts = (value,) if isinstance(value, str) else tuple(value or ())
    if not texts:
        raise SettingsError("a data source is missing")
    is_tokens = all(text.endswith((".bin", ".idx")) for text in texts)
    return Config("megatron" if is_tokens else "text", (), (("files", texts),))


def _objective(data: Config, place: Place, common: dict[str, Any]) -> Source:
    text, stream = _text(as_source(argument(data, "source", 0)), place)
    more = {
        **common,
        "identity": f"{text.identity}|{place.split}",
        "tokens_per_byte": text.tokens_per_byte,
    }
    if data.name == "mlm":
        if text.tokenizer is None:
            raise SettingsError("`mlm(…)` needs a `tokenizer`, to know [MASK]")
        mask = float(argument(data, "mask", 1, 0.15))
        return MaskedSource(stream, place.inputs, text.tokenizer, mask=mask, **more)
    rate, span = float(argument(data, "rate", 1, 0.15)), float(argument(data, "span", 2, 3.0))
    return SpanSource(stream, place.inputs, text.tokenizer, rate=rate, span=span, **more)


def _text(data: Config, place: Place) -> tuple[Text, Stream]:
    held_out = float(argument(data, "held_out", 9, 0.02))
    if data.name == "megatron":
        text = _token_files(data, place)
    elif data.name in ("text", "stdlib"):
        text = _corpus(data, place)
    else:
        raise SettingsError(f"`{data.name}(…)` gives no text")
    return text, make_stream(text.files, place.split, held_out)


def _patterns(data: Config) -> Sequence[str]:
    files = argument(data, "files", 0)
    if files is None:
        raise SettingsError(f"`{data.name}(…)` names no files")
    return (files,) if isinstance(files, str) else tuple(str(f) for f in files)


def _token_files(data: Config, place: Place) -> Text:
    names = [p if p.endswith((".bin", ".idx")) else p + ".idx" for p in _patterns(data)]
    prefixes = dict.fromkeys(prefix_of(path) for path in find_files(names, place.base_dir))
    files = tuple(read_tokens(prefix) for prefix in prefixes)
    tokenizer = None
    if place.tokenizer is not None:
        tokenizer = build_tokenizer(place.tokenizer, place.base_dir, place.cache_dir, None)
    sizes = [(str(p.name), p.with_name(p.name + ".bin").stat().st_size) for p in prefixes]
    return Text(files, tokenizer, None, f"megatron|{sizes}")


def _corpus(data: Config, place: Place) -> Text:
    if data.name == "stdlib":
        corpus = Corpus(stdlib_files())
    else:
        files = find_files(_patterns(data), place.base_dir)
        corpus = Corpus(files, str(argument(data, "key", 9, "text")))

    def training_text() -> tuple[str, Iterable[str]]:
        return corpus.fingerprint(), corpus.documents()

    tokenizer = build_tokenizer(place.tokenizer, place.base_dir, place.cache_dir, training_text)
    tokens, num_bytes = tokenized(corpus, tokenizer, place.cache_dir)
    if tokens.num_tokens == 0:
        raise SettingsError(f"`data = {data}`: the files hold no text")
    rate = tokens.num_tokens / num_bytes if num_bytes else None
    identity = f"{corpus.fingerprint()}|{tokenizer.fingerprint}"
    return Text((tokens,), tokenizer, rate, identity)
