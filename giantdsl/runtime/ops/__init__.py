"""Everything that an emitted stage imports: operators that know of divided tensors.

Without the arguments that say what is divided, each computes what its namesake of
`runtime/prelude` does.
"""

from giantdsl.runtime.axes import Axes, Slices, Split
from giantdsl.runtime.collectives import (
    all_gather,
    copy_to,
    gather_whole,
    local,
    reduce_from,
    reduce_scatter,
    scatter,
)
from giantdsl.runtime.groups import Group, Groups
from giantdsl.runtime.ops.attention import alibi, attention, relative_bias
from giantdsl.runtime.ops.experts import combine, dispatch, load_balance, topk
from giantdsl.runtime.ops.layers import embedding, fused, pick
from giantdsl.runtime.ops.losses import cross_entropy, mse, z_loss
from giantdsl.runtime.ops.random import dropout, normal_, uniform_
from giantdsl.runtime.prelude.layers import ExpertLinear, ExpertNorm
from giantdsl.runtime.prelude.positions import rope
from giantdsl.runtime.prelude.random import fold
from giantdsl.runtime.prelude.recompute import recomputed
from giantdsl.runtime.weight_gradients import Linear

__all__ = [
    "Axes",
    "ExpertLinear",
    "ExpertNorm",
    "Group",
    "Groups",
    "Linear",
    "Slices",
    "Split",
    "alibi",
    "all_gather",
    "attention",
    "combine",
    "copy_to",
    "cross_entropy",
    "dispatch",
    "dropout",
    "embedding",
    "fold",
    "fused",
    "gather_whole",
    "load_balance",
    "local",
    "mse",
    "normal_",
    "pick",
    "recomputed",
    "reduce_from",
    "reduce_scatter",
    "relative_bias",
    "rope",
    "scatter",
    "topk",
    "uniform_",
    "z_loss",
]
