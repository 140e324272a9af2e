"""Broken specs, made from whole ones. The same seed gives the same mutant.

Most mutations keep a spec readable and change what it means: a name becomes another name of the
file, an axis is lost, an argument is repeated, a line moves into another block. Those reach the
checker; `noise` reaches the parser.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_TOKEN = re.compile(
    r"\s+|#[^\n]*|\"[^\"\n]*\"|[A-Za-z_]\w*'?|\d[\w.]*|->|\.\.|\*\*|//|[<>=!]=|.", re.DOTALL
)
_NAME = re.compile(r"[A-Za-z_]\w*'?")
_SECTION = re.compile(
    r"^(?=(?:model|import|dims|default|block|extern|forward|weights|parallel|train|profile)\b)",
    re.MULTILINE,
)
_NUMBERS = [
    *("0", "1", "2", "3", "7", "-1", "0.5", "1e9", "1e300", "1e-30", "4096", "true", "none"),
    *("1000000000000", "9999999999999999999"),
]
_WORDS = [
    *("linear", "embedding", "layernorm", "rmsnorm", "param", "relative_bias", "sdpa", "rope"),
    *("positions", "alibi", "gelu", "silu", "tanh", "sigmoid", "exp", "log", "sqrt", "softcap"),
    *("dropout", "where", "softmax", "mean", "sum", "max", "min", "pad", "rearrange", "concat"),
    *("expand", "topk", "dispatch", "combine", "load_balance", "cross_entropy", "z_loss", "mse"),
    *("tie", "per", "init", "bias", "over", "along", "keep", "mask", "causal", "window", "theta"),
    *("scaling", "normal", "zeros", "xavier", "batch", "seq", "ragged", "feature", "int", "bool"),
    *("float", "repeat", "shared", "if", "else", "return", "loss", "stage", "every", "block"),
    *("forward", "dims", "default", "extern", "x", "b", "s", "d", "s'", "steps", "tp", "lr"),
]
_PIECES = [
    *(
        "tie=tok",
        "per=experts",
        "per=d",
        "over=s",
        "over=[b, s]",
        "bias=true",
        "init=zeros",
        "lr=0",
    ),
    *("[s=0]", "[s=1:]", "[s as s']", "[b=0]", "[s=-1:0]", "as q", "as x", "-> [b, s, d]", "-> []"),
    *("-> [d, d]", "-> [.., d]", "+ x", "* d", "/ 0", "** 0.5", "- -", "if d else none", "@tp"),
    *("@dp", "\n  x = x\n", "\n  return x\n", "\n  stage\n", "\n  loss lm = x\n"),
    *("\n  repeat 2 { x = x }\n", "\n  repeat i in 3 { x = x * i }\n", "\n  if s { x = 1 }\n"),
]
_NOISE = [*"(){}[]=,;:.'\"#@<>\\%&?\t\0\r", "é", "→", "\u2028", "\U0001f600", "\n\n", "1e", "..."]

Mutation = Callable[[random.Random, str, Sequence[str]], str]


def spec_texts() -> list[str]:
    """The specs mutants are made from."""
    folders = [ROOT / "models", ROOT / "grammar" / "std", ROOT / "tests" / "fuzz" / "seeds"]
    paths = [path for folder in folders for path in sorted(folder.rglob("*.giant"))]
    assert len(paths) > 10, "the specs are not where they should be"
    return [path.read_text(encoding="utf-8") for path in paths]


def mutant(seed: int, texts: Sequence[str]) -> str:
    """One of `texts` after one to four mutations."""
    rng = random.Random(seed)
    text = rng.choice(texts)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        text = rng.choice(_MUTATIONS)(rng, text, texts)
    return text


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


def _solid(tokens: Sequence[str]) -> list[int]:
    """Positions of the tokens that are no space and no comment."""
    return [i for i, token in enumerate(tokens) if not token.isspace() and token[0] != "#"]


def _edit(text: str, rng: random.Random, edit: Callable[[list[str], int], None]) -> str:
    tokens = _tokens(text)
    solid = _solid(tokens)
    if solid:
        edit(tokens, rng.choice(solid))
    return "".join(tokens)


def delete_token(rng: random.Random, text: str, texts: Sequence[str]) -> str:
    def edit(tokens: list[str], at: int) -> None:
        del tokens[at]

    return _edit(text, rng, edit)


def double_token(rng: random.Random, text: str, texts: Sequence[str]) -> str:
    def edit(tokens: list[str], at: int) -> None:
        tokens.insert(at, tokens[at] + rng.choice(("", " ", ", ")))

    return _edit(text, rng, edit)


def swap_tokens(rng: random.Random, text: str, texts: Sequence[str]) -> str:
    def edit(tokens: list[str], at: int) -> None:
        other = rng.choice(_solid(tokens))
        tokens[at], tokens[other] = tokens[other], tokens[at]

    return _edit(text, rng, edit)


def copy_token(rng: random.Random, text: str, texts: Sequence[str]) -> str:
    def edit(tokens: list[str], at: int) -> None:
        tokens[at] = tokens[rng.choice(_solid(tokens))]

    return _edit(text, rng, edit)


def other_name(rng: random.Random, text: str, texts: Sequence[str]) -> str:
    """A name becomes another one of the file, or a word of the language."""
    tokens = _tokens(text)
    names = [i for i in _solid(tokens) if _NAME.fullmatch(tokens[i])]
    if not names:
        return text
    at = rng.choice(names)
    tokens[at] = rng.choice(_WORDS) if rng.random() < 0.3 else tokens[rng.choice(names)]
    return "".join(tokens)


def other_number(rng: random.Random, text: str, texts: Sequence[str]) -> str:
    tokens = _tokens(text)
    numbers = [i for i in _solid(tokens) if tokens[i][0].isdigit()]
    if numbers:
        tokens[rng.choice(numbers)] = rng.choice(_NUMBERS)
    return "".join(tokens)


def rename(rng: random.Random, text: str, texts: Sequence[str]) -> str:
    """All uses of one name become another one."""
    names = sorted(set(_NAME.findall(text)))
    if len(names) < 2:
        return text
    old, new = rng.sample(names, 2)
    return re.sub(rf"\b{re.escape(old)}(?!\w)", new, text)


def insert_piece(rng: random.Random, text: str, texts: Sequence[str]) -> str:
    def edit(tokens: list[str], at: int) -> None:
        piece = rng.choice(_PIECES)
        comma = ", " if "=" in piece and piece[0].isalpha() and rng.random() < 0.8 else " "
        tokens[at] += comma + piece if rng.random() < 0.8 else piece

    return _edit(text, rng, edit)


def cut_list(rng: random.Random, text: str, texts: Sequence[str]) -> str:
    """`[b, s, d]` loses, gains or moves an axis; so does any list in brackets."""
    places = list(re.finditer(r"[\[(]([^][(){}\n]*)[\])]", text))
    if not places:
        return text
    place = rng.choice(places)
    items = [item for item in place[1].split(",") if item.strip()]
    choice = rng.randrange(4)
    if choice == 0 and items:
        items.pop(rng.randrange(len(items)))
    elif choice == 1 and items:
        items.insert(rng.randrange(len(items) + 1), rng.choice(items))
    elif choice == 2:
        items.append(rng.choice(_WORDS))
    else:
        rng.shuffle(items)
    shown = ", ".join(item.strip() for item in items)
    return text[: place.start() + 1] + shown + text[place.end() - 1 :]


def move_line(rng: random.Random, text: str, texts: Sequence[str]) -> str:
    lines = text.split("\n")
    lines.insert(rng.randrange(len(lines)), lines.pop(rng.randrange(len(lines))))
    return "\n".join(lines)


def double_line(rng: random.Random, text: str, texts: Sequence[str]) -> str:
    lines = text.split("\n")
    lines.insert(rng.randrange(len(lines)), rng.choice(lines))
    return "\n".join(lines)


def delete_line(rng: random.Random, text: str, texts: Sequence[str]) -> str:
    lines = text.split("\n")
    lines.pop(rng.randrange(len(lines)))
    return "\n".join(lines)


def borrow_line(rng: random.Random, text: str, texts: Sequence[str]) -> str:
    """A line of another spec."""
    lines = text.split("\n")
    lines.insert(rng.randrange(len(lines)), rng.choice(rng.choice(texts).split("\n")))
    return "\n".join(lines)


def move_section(rng: random.Random, text: str, texts: Sequence[str]) -> str:
    sections = _SECTION.split(text)
    section = sections.pop(rng.randrange(len(sections)))
    if rng.random() < 0.7:
        sections.insert(rng.randrange(len(sections) + 1), section)
    return "".join(sections)


def borrow_section(rng: random.Random, text: str, texts: Sequence[str]) -> str:
    sections = _SECTION.split(text)
    other = rng.choice(_SECTION.split(rng.choice(texts)))
    sections.insert(rng.randrange(len(sections) + 1), other)
    return "".join(sections)


def noise(rng: random.Random, text: str, texts: Sequence[str]) -> str:
    """Characters changed, lost and added."""
    chars = list(text)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(chars) + 1)
        chars[at : at + rng.randrange(3)] = rng.choice(_NOISE)
    return "".join(chars)


_MUTATIONS: tuple[Mutation, ...] = (
    delete_token,
    double_token,
    swap_tokens,
    copy_token,
    *(other_name,) * 4,
    *(other_number,) * 2,
    rename,
    *(insert_piece,) * 3,
    *(cut_list,) * 3,
    move_line,
    double_line,
    delete_line,
    borrow_line,
    move_section,
    borrow_section,
    noise,
)
