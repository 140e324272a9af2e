"""Data: formats to the byte, orders that are bijections, samples that are pure functions."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from giantdsl.attrs import Config
from giantdsl.errors import SettingsError
from giantdsl.plan import InputInfo
from giantdsl.settings.values import TrainSettings
from giantdsl.train.data import build_source, inspect, prepare
from giantdsl.train.data.indexed import Writer, read_tokens
from giantdsl.train.data.order import permuted
from giantdsl.train.data.spans import corrupted, raw_length
from giantdsl.train.data.stream import make_stream
from giantdsl.train.data_protocol import Source

SEQ = 8


def index(name: str, size: int = 256, seq: int = SEQ, axis: str = "vocab") -> InputInfo:
    return InputInfo(name, ("b", "s"), (None, seq), axis, size, (1,), name == "labels")


def other(name: str, dtype: str, seq: int | None = SEQ) -> InputInfo:
    axes, sizes = (("b", "s"), (None, seq)) if seq else (("b",), (None,))
    return InputInfo(name, axes, sizes, dtype, None, (1,) if seq else (), False)


LM = (index("tokens"), index("labels"))


def call(name: str, *args: object, **kwargs: object) -> Config:
    return Config(name, args, tuple(kwargs.items()))  # type: ignore[arg-type]


def source(
    data: Config,
    folder: Path,
    inputs: tuple[InputInfo, ...] = LM,
    split: str = "train",
    tokenizer: Config | None = None,
    seed: int = 0,
) -> Source:
    settings = TrainSettings(
        optimizer=call("adamw"), lr=call("constant"), data=data, tokenizer=tokenizer, seed=seed
    )
    return build_source(settings, inputs, folder, split=split, cache_dir=folder / "cache")  # type: ignore[arg-type]


@pytest.fixture
def books(tmp_path: Path) -> Path:
    for i in range(120):
        (tmp_path / f"book{i:03}.txt").write_text(f"chapter {i} " * 9)
    return tmp_path


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 17, 1000, 4097])
def test_the_order_is_a_bijection_and_differs_by_epoch(size: int) -> None:
    places = np.arange(size)
    first, second = permuted(places, size, 7, 0), permuted(places, size, 7, 1)
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(size))
    assert size < 16 or (first != second).mean() > 0.8
    assert np.array_equal(permuted(places[::-1], size, 7, 0), first[::-1])


def test_a_huge_order_costs_no_memory() -> None:
    size = 10_000_000_000
    found = permuted(np.array([0, 1, size - 1]), size, 1, 0)
    assert ((found >= 0) & (found < size)).all() and len(set(found.tolist())) == 3


def test_megatrons_bytes_read_and_written(tmp_path: Path) -> None:
    """Two documents, [5, 6, 7] and [8], as Megatron-LM's MMapIndexedDataset writes them."""
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 2, 3)
    body = struct.pack("<ii", 3, 1) + struct.pack("<qq", 0, 6) + struct.pack("<qqq", 0, 1, 2)
    (tmp_path / "m.idx").write_bytes(head + body)
    (tmp_path / "m.bin").write_bytes(struct.pack("<HHHH", 5, 6, 7, 8))
    found = read_tokens(tmp_path / "m")
    assert found.lengths.tolist() == [3, 1] and found.tokens.tolist() == [5, 6, 7, 8]
    writer = Writer(tmp_path / "w", 100)
    writer.add([5, 6, 7])
    writer.add([8])
    writer.close()
    for suffix in (".idx", ".bin"):
        assert (tmp_path / f"w{suffix}").read_bytes() == (tmp_path / f"m{suffix}").read_bytes()
    assert not list(tmp_path.glob(".w*"))


def test_sequences_become_documents(tmp_path: Path) -> None:
    """Megatron cuts a document into sentences where asked: boundaries join them again."""
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, 3, 3)
    body = (
        struct.pack("<iii", 2, 1, 2) + struct.pack("<qqq", 0, 8, 12) + struct.pack("<qqq", 0, 2, 3)
    )
    (tmp_path / "m.idx").write_bytes(head + body)
    (tmp_path / "m.bin").write_bytes(np.arange(5, dtype="<i4").tobytes())
    found = read_tokens(tmp_path / "m")
    assert found.starts.tolist() == [0, 3] and found.lengths.tolist() == [3, 2]


GOOD = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 1, 2) + struct.pack("<iqqq", 2, 0, 0, 1)
DAMAGED = {
    "too short for an index": GOOD[:10],
    "not a token index": b"PK\x03\x04" + GOOD[4:],
    "version 2 of the format": GOOD.replace(struct.pack("<Q", 1), struct.pack("<Q", 2), 1),
    "another byte order": GOOD.replace(struct.pack("<Q", 1), struct.pack(">Q", 1), 1),
    "holds float32": GOOD[:17] + b"\x07" + GOOD[18:],
    "has dtype code 99": GOOD[:17] + b"\x63" + GOOD[18:],
    "truncated or damaged": GOOD[:-3],
    "take 13,835,058,055,282,163": GOOD[:18] + struct.pack("<QQ", 2**60, 2) + GOOD[34:],
    "sequence 0 lies at byte 0 with 999": GOOD[:34] + struct.pack("<iqqq", 999, 0, 0, 1),
}


@pytest.mark.parametrize("message", DAMAGED)
def test_a_damaged_index_is_named_with_its_fault(message: str, tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(b"\x01\x00\x02\x00")
    (tmp_path / "m.idx").write_bytes(DAMAGED[message])
    with pytest.raises(SettingsError) as error:
        read_tokens(tmp_path / "m")
    assert message in str(error.value) and "m.idx" in str(error.value)


def test_language_windows_are_shifted_by_one_and_cover_the_text(books: Path) -> None:
    found = source(call("text", files=("*.txt",), held_out=0.0), books)
    assert found.num_samples is not None
    batch = found.batch(range(found.num_samples))
    assert torch.equal(batch["tokens"][:, 1:], batch["labels"][:, :-1])
    text = "".join(p.read_text() + "\0" for p in sorted(books.glob("*.txt"))).encode()
    windows = {bytes(text[i : i + SEQ]) for i in range(0, found.num_samples * SEQ, SEQ)}
    assert {bytes(row.tolist()) for row in batch["tokens"]} == windows


def test_samples_are_pure_and_resume_in_the_middle(books: Path) -> None:
    data = call("text", files=("*.txt",))
    one, two = source(data, books), source(data, books)
    size = one.num_samples
    assert size is not None
    far = one.batch(range(3 * size + 5, 3 * size + 9))
    assert all(torch.equal(far[k], two.batch(range(3 * size + 5, 3 * size + 9))[k]) for k in far)
    epoch = [one.batch([i])["tokens"] for i in range(size)]
    again = [one.batch([size + i])["tokens"] for i in range(size)]
    assert not all(torch.equal(a, b) for a, b in zip(epoch, again, strict=True))
    assert one.fingerprint == two.fingerprint != source(data, books, seed=1).fingerprint


def test_held_out_documents_are_in_no_training_sample(books: Path) -> None:
    data = call("text", files=("*.txt",), held_out=0.1)
    train, held = source(data, books), source(data, books, split="eval")
    assert train.num_samples and held.num_samples
    shown = held.batch(range(held.num_samples))["tokens"]
    assert torch.equal(shown, held.batch(range(held.num_samples))["tokens"])
    rows = [bytes(row.tolist()) for row in train.batch(range(train.num_samples))["tokens"]]
    assert not any(b" 9 ch" in row for row in rows) and any(b" 8 ch" in row for row in rows)


def test_few_documents_are_cut_at_the_end(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "w", 100)
    writer.add(range(100))
    writer.close()
    tokens = read_tokens(tmp_path / "w")
    train, held = (make_stream([tokens], split, 0.1) for split in ("train", "eval"))  # type: ignore[arg-type]
    assert (train.num_tokens, held.num_tokens) == (90, 10)
    assert held.read(np.arange(10))[0].tolist() == list(range(90, 100))


def test_packing_gives_documents_positions_and_no_label_across_an_end(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "w", 256)
    for document in ([1, 2, 3], [], [4, 5], [6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]):
        writer.add(document)
    writer.close()
    inputs = (*LM, other("document", "int"), index("position", SEQ, axis="s"))
    found = source(call("megatron", files=("w.bin",), held_out=0.0), tmp_path, inputs)
    batch = {int(row["tokens"][0, 0]): row for row in (found.batch([i]) for i in range(2))}
    first = batch[1]
    assert first["tokens"].tolist() == [[1, 2, 3, 4, 5, 6, 7, 8]]
    assert first["labels"].tolist() == [[2, 3, -100, 5, -100, 7, 8, 9]]
    assert first["document"].tolist() == [[0, 0, 0, 1, 1, 2, 2, 2]]
    assert first["position"].tolist() == [[0, 1, 2, 0, 1, 0, 1, 2]]
    second = batch[9]
    assert second["position"].tolist() == [[0, 1, 2, 3, 4, 5, 6, 7]]


def test_bytes_of_labels(books: Path) -> None:
    pytest.importorskip("tokenizers")
    data = call("text", files=("*.txt",), held_out=0.0)
    inputs = (index("tokens", 300), index("labels", 300))
    found = source(data, books, inputs, tokenizer=call("bpe", vocab=300))
    batch = found.batch(range(4))
    assert found.tokenizer is not None
    text = "".join(found.tokenizer.decode(row.tolist()) for row in batch["labels"])
    assert found.bytes_of(batch) == len(text.encode())
    assert found.tokenizer.decode(found.tokenizer.encode("chapter 7 ünï")) == "chapter 7 ünï"


def test_masked_samples(books: Path) -> None:
    pytest.importorskip("tokenizers")
    inputs = (
        index("tokens", 300, 64),
        index("labels", 300, 64),
        index("segments", 2, 64, "types"),
        other("keep", "bool", 64),
        InputInfo("follows", ("b",), (None,), "answers", 2, (), True),
    )
    data = call("mlm", source=call("text", files=("*.txt",)), mask=0.15)
    found = source(data, books, inputs, tokenizer=call("bpe", vocab=300))
    assert found.num_samples is not None
    batch = found.batch(range(min(found.num_samples, 60)))
    chosen = batch["labels"] != -100
    assert 0.12 < chosen.float().mean() < 0.17
    hidden = (batch["tokens"] == 4) & chosen
    assert 0.7 < hidden.sum() / chosen.sum() < 0.9
    assert torch.equal(
        batch["tokens"][~chosen & (batch["tokens"] == 4)], torch.empty(0, dtype=torch.long)
    )
    assert (batch["tokens"][:, 0] == 2).all() and (batch["tokens"][:, -1] == 3).all()
    assert 0.2 < batch["follows"].float().mean() < 0.8
    again = found.batch(range(min(found.num_samples, 60)))
    assert all(torch.equal(batch[k], again[k]) for k in batch)


def test_span_corruption_by_hand() -> None:
    sample = corrupted([7, 99, 9, 98], [99, 8, 98, 10], 6, 5)
    assert {k: v.tolist() for k, v in sample.items()} == {
        "tokens": [7, 99, 9, 98, 0, 0],
        "keep": [True, True, True, True, False, False],
        "inputs": [0, 99, 8, 98, 10],
        "labels": [99, 8, 98, 10, -100],
    }
    raw, removed, spans = raw_length(512, 114, 0.15, 3.0)
    assert (raw, removed, spans) == (569, 85, 28)


def test_span_corruption_keeps_every_token_once(books: Path) -> None:
    inputs = (
        index("tokens", 300, 32), other("keep", "bool", 32), index("inputs", 300, 16),
        index("labels", 300, 16),
    )  # fmt: skip
    data = call("span_corruption", source=call("text", files=("*.txt",), held_out=0.0))
    found = source(data, books, inputs)
    row = {k: v[0] for k, v in found.batch([0]).items()}
    source_ids = row["tokens"][row["keep"]].tolist()
    target = [i for i in row["labels"].tolist() if i >= 0]
    text: list[int] = []
    for token in source_ids:
        if token < 256:
            text.append(token)
            continue
        at = target.index(token) + 1
        while at < len(target) and target[at] < 256:
            text.append(target[at])
            at += 1
    whole = "".join(p.read_text() + "\0" for p in sorted(books.glob("*.txt"))).encode()
    assert bytes(text) in whole


def test_a_blend_holds_its_ratio_and_counts_each_source_on(books: Path) -> None:
    (books / "z.jsonl").write_text("\n".join(json.dumps({"text": "ZZZZ" * 40}) for _ in range(9)))
    data = Config(
        "blend", (), (("a", call("text", files=("book*.txt",))), ("z", call("text", files=("z.jsonl",))),
                      ("ratio", (0.75, 0.25))),
    )  # fmt: skip
    found = source(data, books)
    tokens = found.batch(range(2000))["tokens"]
    share = (tokens == ord("Z")).any(1).float().mean()
    assert abs(share - 0.25) < 1e-6
    assert torch.equal(found.batch([1234])["tokens"][0], tokens[1234])
    assert found.num_samples is None


def test_synthetic_fits_any_inputs() -> None:
    inputs = (*LM, other("x", "float"), other("keep", "bool"), other("label", "float", None))
    batch = source(call("synthetic", samples=10), Path(), inputs).batch([0, 1])
    assert {k: tuple(v.shape) for k, v in batch.items()} == {
        "tokens": (2, 8), "labels": (2, 8), "x": (2, 8), "keep": (2, 8), "label": (2,),
    }  # fmt: skip
    assert torch.equal(batch["tokens"][:, 1:], batch["labels"][:, :-1])


def test_any_torch_dataset(tmp_path: Path) -> None:
    (tmp_path / "my_data.py").write_text(
        "import torch\n"
        "class Squares(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 5\n"
        "    def __getitem__(self, i): return {'tokens': [i] * 8, 'labels': torch.full((8,), i * i)}\n"
        "def make(): return Squares()\n"
    )
    found = source(call("python", target="my_data:make"), tmp_path)
    batch = found.batch(range(5))
    assert sorted(batch["tokens"][:, 0].tolist()) == [0, 1, 2, 3, 4]
    assert torch.equal(batch["labels"][:, 0], batch["tokens"][:, 0] ** 2)


WRONG = {
    "no file fits `none/*.txt`": (call("text", files=("none/*.txt",)), LM),
    "nothing for `extra`": (call("text", files=("*.txt",)), (*LM, other("extra", "float"))),
    "has only 50 entries": (
        call("text", files=("*.txt",)),
        (index("tokens", 50), index("labels", 50)),
    ),
    "one sample takes 100,001": (call("text", files=("*.txt",)), (index("tokens", 256, 100_000),)),
    "needs a tokenizer with [CLS]": (
        call("mlm", source=call("text", files=("*.txt",))),
        (index("tokens"), index("labels")),
    ),
    "needs a model with an input `document": (call("text", files=("*.txt",), pack=True), LM),
    "no module `nothing_here`": (call("python", target="nothing_here:make"), LM),
    "not a token index": (call("megatron", files=("bad.idx",)), LM),
    "give one number from 0 for each": (
        Config("blend", (), (("a", call("synthetic")), ("ratio", (1, 2)))),
        LM,
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_does_not_fit_is_said_in_one_line(message: str, books: Path) -> None:
    (books / "bad.idx").write_bytes(b"x" * 80)
    (books / "bad.bin").write_bytes(b"x" * 80)
    data, inputs = WRONG[message]
    with pytest.raises(SettingsError) as error:
        source(data, books, inputs)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_prepare_and_inspect(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    (tmp_path / "b.jsonl").write_text('{"text": "wörld"}\n\n{"text": ""}\n')
    seen: list[tuple[int, int]] = []
    files = [tmp_path / "a.txt", tmp_path / "b.jsonl"]
    made = prepare(
        files,
        tmp_path / "out",
        Config("byte"),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert (made.documents, made.tokens, made.longest, made.empty) == (3, 6 + 7 + 1, 7, 0)
    assert bytes(made.sample) == b"hello\0" and seen[-1][0] <= seen[-1][1]
    assert inspect(tmp_path / "out.bin") == made
    with pytest.raises(SettingsError, match="hold no text"):
        (tmp_path / "empty.txt").write_text("")
        prepare([tmp_path / "empty.txt"], tmp_path / "none", Config("byte"), append_end=False)
    assert not list(tmp_path.glob("*none*"))
    with pytest.raises(SettingsError, match="b2.jsonl:1: no text under `text`"):
        (tmp_path / "b2.jsonl").write_text('{"body": 1}')
        prepare([tmp_path / "b2.jsonl"], tmp_path / "none", Config("byte"))


def test_the_standard_library_is_always_there(tmp_path: Path) -> None:
    from giantdsl.train.data.corpus import stdlib_files

    files = stdlib_files()
    assert files == stdlib_files() and len(files) > 300
    assert any(path.name == "argparse.py" for path in files)
    assert not any("site-packages" in path.parts for path in files)
