"""The functions that settings call: optimizers, learning rates, schedules, and small ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from giantdsl.attrs import Attr, Config
from giantdsl.settings.kinds import (
    As,
    Either,
    Flag,
    Kind,
    ListOf,
    Nothing,
    Reading,
    Real,
    Text,
    Whole,
    Word,
    optional,
)
from giantdsl.settings.signatures import Calls, Parameter, Signature


def table(signatures: Iterable[Signature]) -> dict[str, Signature]:
    """Signatures by the name of their function."""
    return {signature.name: signature for signature in signatures}


# ---- optimizers ---------------------------------------------------------------------------

_SHARE = Real(minimum=0, below=1)
_DECAY = Parameter("decay", Real(minimum=0), "decoupled weight decay", 0.01)
_NO_DECAY = Parameter("decay", Real(minimum=0), "weight decay", 0.0)


def _nesterov_has_momentum(given: Mapping[str, Attr], reading: Reading) -> None:
    if given["nesterov"] is True and given["momentum"] == 0:
        inner = reading.inside("", "nesterov")
        inner.fault("G603", "`nesterov` needs momentum", "momentum is 0", "add momentum=0.9")


OPTIMIZERS = Calls(
    table(
        [
            Signature(
                "adamw",
                "Loshchilov & Hutter 2019",
                (
                    Parameter(
                        "betas",
                        ListOf(_SHARE, "two numbers from 0 up to 1, as in [0.9, 0.95]", 2),
                        "decay of the first and second moment",
                        (0.9, 0.999),
                    ),
                    Parameter("eps", Real(above=0), "added to the root of the second moment", 1e-8),
                    _DECAY,
                ),
            ),
            Signature(
                "adafactor",
                "Shazeer & Stern 2018",
                (
                    Parameter(
                        "power", Real(below=0), "second moments decay by 1 - step^power", -0.8
                    ),
                    Parameter("threshold", Real(above=0), "clips the size of an update", 1.0),
                    Parameter("eps", Real(above=0), "least size of a parameter for scaling", 1e-3),
                    Parameter("beta1", _SHARE, "momentum; 0 for none", 0.0),
                    Parameter("scale", Flag(), "scale updates by the size of the parameter", True),
                    _NO_DECAY,
                ),
            ),
            Signature(
                "sgd",
                "stochastic gradient descent",
                (
                    Parameter("momentum", _SHARE, "0 for none", 0.0),
                    Parameter("nesterov", Flag(), "look ahead", False),
                    _NO_DECAY,
                ),
                check=_nesterov_has_momentum,
            ),
        ]
    ),
    "an optimizer",
)


# ---- learning rates -----------------------------------------------------------------------


def _floor_below_peak(given: Mapping[str, Attr], reading: Reading) -> None:
    peak, floor = given.get("peak"), given.get("floor")
    if isinstance(peak, float) and isinstance(floor, float) and floor > peak:
        inner = reading.inside("", "floor")
        inner.fault("G603", "`floor` is at most `peak`", f"{floor:g} is above {peak:g}")


_PEAK = Parameter("peak", Real(minimum=0), "the highest rate", required=True)
_WARMUP = Parameter("warmup", Whole(), "steps of linear rise to the peak", 0)
_FLOOR = Parameter("floor", Real(minimum=0), "the rate at the end", 0.0)


def _falling(name: str, doc: str, *more: Parameter) -> Signature:
    return Signature(name, doc, (_PEAK, _WARMUP, *more, _FLOOR), check=_floor_below_peak)


RATES = Calls(
    table(
        [
            Signature("constant", "the peak after the warm-up", (_PEAK, _WARMUP)),
            _falling("linear", "falls on a line to the floor at the last step"),
            _falling("cosine", "falls on half a cosine to the floor at the last step"),
            Signature(
                "rsqrt",
                "peak * sqrt(warmup / step) after the warm-up",
                (_PEAK, Parameter("warmup", Whole(1), _WARMUP.doc, 10_000)),
            ),
            _falling(
                "wsd",
                "stable at the peak, then falls on a line",
                Parameter(
                    "decay",
                    Real(minimum=0, maximum=1),
                    "share of all steps in which it falls",
                    0.1,
                ),
            ),
        ]
    ),
    "a schedule",
)


def _constant_rate(value: Attr) -> Config:
    return Config("constant", (), (("peak", value), ("warmup", 0)))


RATE: Kind = Either(
    (As(_PEAK.kind, _constant_rate), RATES),
    f"a number or {RATES.words}",
)


# ---- pipelines ----------------------------------------------------------------------------

SCHEDULES = Calls(
    table(
        [
            Signature("1f1b", "one forward, one backward (PipeDream-Flush, Narayanan 2021)"),
            Signature("gpipe", "all forward, then all backward (Huang 2019)"),
            Signature(
                "interleaved",
                "several stages a rank (Narayanan 2021)",
                (Parameter("chunks", Whole(1), "stages a rank", 2),),
            ),
            Signature("zero_bubble", "input and weight gradients apart (Qi 2024)"),
        ]
    ),
    "a pipeline schedule",
)

STAGES: Kind = Either(
    (
        Nothing(),
        ListOf(Whole(), "a list of whole numbers: iterations of `repeat` a stage"),
        Calls(
            table(
                [
                    Signature(
                        "auto",
                        "balanced by the planner",
                        (
                            Parameter(
                                "by", Word(("time", "params", "flops")), "what is balanced", "time"
                            ),
                        ),
                    )
                ]
            ),
            "a way to cut",
        ),
    ),
    "auto, or a list of iterations a stage, as in [7, 9, 9, 7]",
)


# ---- saving, evaluation, checkpoints, tokenizers ------------------------------------------

_STEPS = Parameter("steps", Whole(1), "number of steps between two times", required=True)

SAVES = Calls(
    table(
        [
            Signature(
                "every",
                "save again and again",
                (
                    _STEPS,
                    Parameter("keep", optional(Whole(1)), "how many checkpoints stay; none: all"),
                    Parameter("async", Flag(), "write while training goes on", True),
                ),
            )
        ]
    ),
    "an interval",
)


def evaluations(data: Kind) -> Calls:
    """`every(500, batches=50, data=…)`, given what a data source is."""
    return Calls(
        table(
            [
                Signature(
                    "every",
                    "evaluate again and again",
                    (
                        _STEPS,
                        Parameter("batches", optional(Whole(1)), "how many; none: all there are"),
                        Parameter("data", optional(data), "none: held out from the training data"),
                    ),
                )
            ]
        ),
        "an interval",
    )


INITS = Calls(
    table(
        [
            Signature(
                "hf",
                "weights of a Hugging Face checkpoint",
                (Parameter("name", Text("a name or a directory"), "", required=True),),
            )
        ]
    ),
    "a source of weights",
)
