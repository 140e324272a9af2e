"""Every operator of the language by name."""

from __future__ import annotations

from giantdsl.sema.builtins.attention import ATTENTION
from giantdsl.sema.builtins.base import Builtin
from giantdsl.sema.builtins.elementwise import ELEMENTWISE
from giantdsl.sema.builtins.experts import EXPERTS
from giantdsl.sema.builtins.layers import LAYERS
from giantdsl.sema.builtins.losses import LOSSES
from giantdsl.sema.builtins.shapes import SHAPES

BUILTINS: dict[str, Builtin] = {
    builtin.signature.name: builtin
    for builtin in (*LAYERS, *ATTENTION, *ELEMENTWISE, *SHAPES, *EXPERTS, *LOSSES)
}
