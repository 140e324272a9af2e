"""What a builtin is: a signature and the function that checks a call and emits its op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from giantdsl.ir.types import AxisKind
from giantdsl.sema.scope import Sem, Tables
from giantdsl.sema.signature import BuiltinCall, Param, Signature

Build = Callable[[BuiltinCall], Sem]


@dataclass(frozen=True, slots=True)
class Builtin:
    signature: Signature
    build: Build


WEIGHT_OPTIONS = (
    Param("init", "config?", None),
    Param("lr", "number?", None),
    Param("decay", "bool?", None),
    Param("dtype", "word?", None),
    Param("tie", "layer?", None),
    Param("per", "axis?", None),
)


def feature_axes(tables: Tables, axes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(a for a in axes if tables.kind(a) is AxisKind.FEATURE)
