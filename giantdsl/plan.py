"""What the driver hands to the runtime: plain data, no tree, no IR."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InputInfo:
    """A tensor `forward` takes.

    `sizes` follow `axes`; None where the batch gives the size. `dtype` is float, int, bool, or
    the name of the axis the integers index, whose extent is then `num_classes`. `seq` are the
    positions in `axes` that are sequence axes (a shorter sequence than `sizes` is legal there).
    `renamed` is what `forward` calls it where Python or the file uses `name` already, else "".
    """

    name: str
    axes: tuple[str, ...]
    sizes: tuple[int | None, ...]
    dtype: str
    num_classes: int | None
    seq: tuple[int, ...]
    loss_only: bool
    renamed: str = ""

    @property
    def keyword(self) -> str:
        """The parameter of `forward` that takes it."""
        return self.renamed or self.name


@dataclass(frozen=True, slots=True)
class ParameterInfo:
    """A logical parameter. `lr` multiplies the learning rate; `decay` says if weight decay applies."""

    name: str
    shape: tuple[int, ...]
    lr: float
    decay: bool
    dtype: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """One model ready to run. `source` is the emitted plain module, `class_name` its class.

    `losses` are the names of the loss terms in order, `counted` those that `loss_counts` returns.
    `recompute` are names of block classes in `source` whose activations are recomputed; `flops`
    counts one sample forward (multiply and add are two), `tokens_per_sample` the positions of
    the longest sequence axis among the index inputs (1 where there is none). `decode_source` is
    the same model, the same class and parameter names, taking a `Cache` of earlier tokens after
    its tokens; "" for a model that does not continue a sequence.
    """

    model: str
    source: str
    source_name: str
    class_name: str
    inputs: tuple[InputInfo, ...]
    output_names: tuple[str, ...]
    parameters: tuple[ParameterInfo, ...]
    num_parameters: int
    losses: tuple[str, ...]
    counted: tuple[str, ...]
    recompute: tuple[str, ...]
    flops: int
    tokens_per_sample: int
    decode_source: str = ""


# ---- several processes ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AxisSplit:
    """How one axis is divided: over `mesh` axes, the slowest first.

    `size` is the whole axis in meaningful elements (for a sequence: as declared; a batch may
    bring a shorter one), `padded` what is divided evenly: the last parts are cut at `size`.
    A sequence axis is divided as evenly as it goes, its parts differing by at most one; under
    `zigzag` a rank of the slowest mesh axis has one run from the front and one from the back.
    """

    axis: str
    mesh: tuple[str, ...]
    size: int
    padded: int
    sequence: bool
    zigzag: bool = False


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """A tensor that crosses from stage to stage, or is compared at the end of a block.

    `axes` are in memory order; `split[i]` are the mesh axes that axis i is divided over, slowest
    first, () where it is whole; the batch axis has ("dp", "ep") there. `sizes[i]` is the whole
    axis, None for the batch. `dtype` is "float", "int" or "bool". Only where `grad` is set does a
    gradient come back.
    """

    name: str
    axes: tuple[str, ...]
    sizes: tuple[int | None, ...]
    split: tuple[tuple[str, ...], ...]
    dtype: str
    grad: bool


@dataclass(frozen=True, slots=True)
class StoredParameter:
    """What ranks hold of a logical parameter.

    `info` is the parameter as one process has it. `view` are the sizes of its named axes in the
    order they lie in memory (their product is the number of elements); `splits` are (position in
    `view`, name in the plan's `splits`) of the axes that are divided. `sum_over` are the mesh axes
    over which gradients of ranks that hold the same part are partial sums; on the others they
    are equal. `stages` hold it: more than one means tied, and the gradients of those add up.
    """

    info: ParameterInfo
    view: tuple[int, ...]
    splits: tuple[tuple[int, str], ...]
    sum_over: tuple[str, ...]
    stages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StageInfo:
    """One stage: a module of its own.

    The class is made with an `Axes` and called with `inputs` (tensors of the batch, by name) and
    `receives` (from the stage before, by name), and `noise` if it `draws`. It returns `makes`
    and then `outputs` as one tuple. `sends` are the names that go on to the next stage: each is
    among `makes` or `receives`. After the call `module.losses` holds its terms of the losses.
    `renamed` are (name, parameter of `forward`) of what it takes under another name.
    """

    index: int
    source: str
    source_name: str
    class_name: str
    inputs: tuple[str, ...]
    receives: tuple[str, ...]
    makes: tuple[str, ...]
    sends: tuple[str, ...]
    outputs: tuple[str, ...]
    losses: tuple[str, ...]
    draws: bool
    units: str
    blocks: tuple[tuple[str, tuple[ValueInfo, ...]], ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ParallelPlan:
    """A model cut and sliced over ranks. `model` is the same model on one process.

    `mesh` are (axis, size) pairs, outermost first. Stage i runs on pipeline rank i mod pp.
    `values` are all values that cross a cut, by name. `schedule` is "gpipe", "1f1b",
    "interleaved" or "zero_bubble".
    """

    model: Plan
    mesh: tuple[tuple[str, int], ...]
    splits: tuple[AxisSplit, ...]
    stages: tuple[StageInfo, ...]
    values: tuple[ValueInfo, ...]
    parameters: tuple[StoredParameter, ...]
    schedule: str
    zero: int
