"""What data sources and tokenizers take, as data: the settings check calls against it."""

from __future__ import annotations

from dataclasses import dataclass

from giantdsl.attrs import Attr


@dataclass(frozen=True, slots=True)
class Param:
    """An argument. `type`: text, texts (one or a list), int, number, share, bool, source,
    numbers. `required` ones have no default."""

    name: str
    type: str
    doc: str
    default: Attr = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """A function that names a data source. `others`: arguments of any other name are sources."""

    name: str
    doc: str
    params: tuple[Param, ...] = ()
    others: bool = False


_FILES = Param("files", "texts", "file names, `*` and `**` stand for anything", required=True)
_HELD_OUT = Param("held_out", "share", "share of the documents kept for evaluation", 0.02)
_PACK = Param("pack", "bool", "whole documents side by side: no attention across their ends", False)
_SOURCE = Param("source", "source", "where the text comes from", required=True)

SOURCES: tuple[Signature, ...] = (
    Signature(
        "text",
        "text files; each file, or each line of a .jsonl, is a document",
        (_FILES, _HELD_OUT, _PACK, Param("key", "text", "field of a .jsonl line", "text")),
    ),
    Signature(
        "stdlib", "the Python standard library's own sources on this machine", (_HELD_OUT, _PACK)
    ),
    Signature(
        "megatron",
        "token files .bin/.idx as Megatron and `data prepare` write them",
        (_FILES, _HELD_OUT, _PACK),
    ),
    Signature(
        "mlm",
        "masked language modelling (Devlin 2019)",
        (_SOURCE, Param("mask", "share", "share of tokens to predict", 0.15)),
    ),
    Signature(
        "span_corruption",
        "spans replaced by sentinels (Raffel 2020)",
        (
            _SOURCE,
            Param("rate", "share", "share of tokens removed", 0.15),
            Param("span", "number", "mean length of a span", 3.0),
        ),
    ),
    Signature(
        "synthetic",
        "random samples with a pattern that can be learned",
        (Param("samples", "int", "samples in an epoch", 4096),),
    ),
    Signature(
        "blend",
        "several sources in fixed proportions",
        (Param("ratio", "numbers", "one number a source, in their order", required=True),),
        others=True,
    ),
    Signature(
        "images",
        "a folder with one folder of pictures for each class",
        (
            Param("folder", "text", "the folder", required=True),
            Param("augment", "augment", "none, flip, randaugment(operations, strength)"),
        ),
    ),
    Signature(
        "python",
        'a torch Dataset made by "module:function"',
        (Param("target", "text", "module:function", required=True),),
    ),
)

TOKENIZERS: tuple[Signature, ...] = (
    Signature("byte", "each byte of UTF-8 is a token"),
    Signature(
        "bpe",
        "byte-level BPE trained on the corpus and cached",
        (Param("vocab", "int", "how many tokens", required=True),),
    ),
    Signature(
        "file",
        "a tokenizer.json of the `tokenizers` library",
        (Param("path", "text", "the file", required=True),),
    ),
    Signature(
        "hf",
        "a tokenizer of the Hugging Face hub that is on this machine",
        (Param("name", "text", "its name, or a folder", required=True),),
    ),
)
