"""The settings there are: what each may be, what it is when nothing is said, its unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from giantdsl.attrs import Attr, Config
from giantdsl.settings.data import DATA, TOKENIZER
from giantdsl.settings.functions import (
    INITS,
    OPTIMIZERS,
    RATE,
    SAVES,
    SCHEDULES,
    STAGES,
    evaluations,
)
from giantdsl.settings.kinds import (
    As,
    Either,
    Flag,
    Kind,
    ListOf,
    Named,
    Real,
    Text,
    Whole,
    Word,
    optional,
)

MESH_AXES = ("dp", "tp", "pp", "cp", "ep")
AUTO = 0
"""What a mesh size holds that was left to the planner."""


@dataclass(frozen=True, slots=True)
class Key:
    """A setting. `default` is written as in the file and read like anything else."""

    kind: Kind
    default: Attr
    doc: str
    example: str
    unit: str = ""


def _one(value: Attr) -> tuple[Attr, ...]:
    return (value,)


def _mesh(doc: str, example: str) -> Key:
    kind = Either((Word(("auto",), {"auto": AUTO}), Whole(1)), "a whole number from 1, or auto")
    return Key(kind, 1, doc, example, "ranks")


def _words(options: tuple[str, ...], what: str) -> Kind:
    word = Word(options)
    return Either((ListOf(word, what, distinct=True), As(word, _one)), what)


_BLOCKS = Either(
    (
        ListOf(Named("a block"), "a list of blocks", distinct=True),
        As(Word(("full", "none"), {"none": None}), lambda v: () if v is None else (v,)),
        As(Word(("none",)), lambda v: ()),
    ),
    "a list of blocks, full or none",
)

PARALLEL: Mapping[str, Key] = {
    "dp": _mesh("copies of the model, each with a share of the batch", "dp = 8"),
    "tp": _mesh("ranks that share each layer", "tp = 4"),
    "pp": _mesh("ranks that share the row of layers", "pp = 4"),
    "cp": _mesh("ranks that share each sequence", "cp = 2"),
    "ep": _mesh("ranks that share the experts", "ep = 8"),
    "zero": Key(
        Whole(0, 3),
        0,
        "what is stored in slices over dp: 1 optimizer state, 2 gradients too, 3 weights too",
        "zero = 1",
    ),
    "schedule": Key(SCHEDULES, Config("1f1b"), "order of microbatches", "schedule = 1f1b"),
    "stages": Key(
        STAGES,
        None,
        "where the model is cut; none: at its marks, else auto",
        "stages = [7, 9, 9, 7]",
    ),
    "recompute": Key(
        _BLOCKS,
        (),
        "blocks whose activations are computed again in backward",
        "recompute = [attention]",
    ),
    "ring": Key(
        Flag(),
        True,
        "keys and values go round the cp ranks; false: each of these gathers them",
        "ring = false",
    ),
    "order": Key(
        ListOf(Word(MESH_AXES), f"all of {', '.join(MESH_AXES)} in some order", 5, True),
        tuple(Config(axis) for axis in ("pp", "dp", "cp", "ep", "tp")),
        "mesh axes, outermost first",
        "order = [pp, dp, cp, ep, tp]",
    ),
    "nodes": Key(optional(Whole(1)), None, "hosts; none: found at start", "nodes = 4", "hosts"),
    "compress": Key(
        Word(("none", "bf16", "int8"), {"none": None}),
        Config("none"),
        "how gradients are compressed between hosts",
        "compress = bf16",
    ),
}

TRAIN: Mapping[str, Key] = {
    "data": Key(optional(DATA), None, "where samples come from", 'data = text("books/*.txt")'),
    "tokenizer": Key(optional(TOKENIZER), None, "how text becomes tokens", 'tokenizer = "gpt2"'),
    "batch": Key(Whole(1), 8, "samples a step, over all ranks", "batch = 512", "sequences"),
    "microbatch": Key(
        optional(Whole(1)),
        None,
        "samples at once on a rank; none: all of them",
        "microbatch = 8",
        "sequences a rank",
    ),
    "steps": Key(optional(Whole(1)), None, "length of the run", "steps = 10_000", "updates"),
    "tokens": Key(optional(Whole(1)), None, "length of the run", "tokens = 300B", "tokens"),
    "epochs": Key(
        optional(Real(above=0)), None, "length of the run", "epochs = 3", "passes over the data"
    ),
    "optimizer": Key(
        OPTIMIZERS,
        Config("adamw"),
        "what turns gradients into updates",
        "optimizer = adamw(decay=0.1)",
    ),
    "lr": Key(RATE, 3e-4, "learning rate", "lr = cosine(peak=3e-4, warmup=2000)"),
    "clip": Key(Real(minimum=0), 0, "largest norm of the gradient; 0: no limit", "clip = 1.0"),
    "precision": Key(
        Word(("float32", "bf16", "float64")),
        Config("float32"),
        "what layers compute in",
        "precision = bf16",
    ),
    "save": Key(
        optional(SAVES),
        None,
        "when checkpoints are written; none: at the end",
        "save = every(1000, keep=5)",
    ),
    "eval": Key(
        optional(evaluations(DATA)),
        None,
        "when held-out loss is computed; none: never",
        "eval = every(500, batches=50)",
    ),
    "log": Key(
        _words(("console", "tensorboard"), "a list of console, tensorboard"),
        (Config("console"),),
        "where progress goes",
        "log = [console, tensorboard]",
    ),
    "seed": Key(Whole(0, 2**63 - 1), 0, "all randomness follows from it", "seed = 7"),
    "init": Key(
        optional(INITS),
        None,
        "where weights start; none: drawn from the seed",
        'init = hf("openai-community/gpt2")',
    ),
    "freeze": Key(
        Either(
            (ListOf(Named("a layer"), "a list of layers"), As(Named("a layer"), _one)),
            "a list of layers",
        ),
        (),
        "layers that do not train; `*` stands for anything",
        'freeze = ["tok", "decoder.0.*"]',
    ),
    "out": Key(
        optional(Text("a folder, in quotes")), None, "where the run is written", 'out = "runs/gpt2"'
    ),
    "compile": Key(Flag(), False, "use torch.compile", "compile = true"),
    "workers": Key(Whole(0), 0, "processes that load data", "workers = 2", "processes"),
    "label": Key(Either((Text(),), "a string"), None, "a name for the run", 'label = "try 3"'),
}

SECTIONS: Mapping[str, Mapping[str, Key]] = {"parallel": PARALLEL, "train": TRAIN}
LENGTHS = ("steps", "tokens", "epochs")
"""Settings that say how long a run is: only one of them holds."""
DEFAULT_STEPS = 1000
"""How long a run is when nothing says it."""
