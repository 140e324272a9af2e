"""Every model under many layouts equals one process; broken rules are found.

`giantdsl verify models/X.giant --all 8` is the whole of it; here every legal layout of up to four
ranks is run, and of eight some.
"""

from __future__ import annotations

import pytest

from giantdsl import resources
from giantdsl.driver import compile_spec
from giantdsl.errors import SpecError
from giantdsl.source import SourceFile
from giantdsl.testing.ranks import RankPool
from giantdsl.verify.layouts import Space, all_layouts, parallel_text, parse_layouts
from giantdsl.verify.mutants import MUTANTS
from giantdsl.verify.rows import Layout, Row
from giantdsl.verify.runner import Runner
from giantdsl.verify.small import SmallSpec
from tests.unit.emit.test_names import TAKEN_TEXT

EIGHT = {
    "gpt2": ["dp=2,tp=2,pp=2", "pp=2,tp=2,cp=2,schedule=zero_bubble"],
    "llama3": ["pp=2,tp=2,dp=2,schedule=interleaved(chunks=2)", "cp=2,tp=4"],
    "bert": ["dp=2,tp=2,pp=2,schedule=gpipe,zero=1"],
    "t5": ["pp=4,tp=2,schedule=zero_bubble", "dp=2,tp=2,cp=2"],
    "mixtral": ["ep=2,tp=2,pp=2", "ep=2,cp=2,dp=2", "ep=4,tp=2,recompute=moe"],
    "vit": ["dp=2,tp=2,pp=2"],
    "alternating": ["pp=4,dp=2"],
    "custom": ["tp=2,pp=2,dp=2", "dp=2,zero=3"],
    "demo": ["tp=2,pp=2,dp=2,microbatch=1"],
}


def small(name: str, *overrides: str) -> SmallSpec:
    return SmallSpec(compile_spec(resources.model_path(name), overrides=overrides))


def running(spec: SmallSpec, ranks: RankPool) -> Runner:
    return Runner(spec.compile, pool=ranks, timeout_s=120)


def legal(spec: SmallSpec, layouts: list[Layout]) -> list[Layout]:
    found = []
    for layout in layouts:
        try:
            spec.compile(layout)
        except SpecError:
            continue
        found.append(layout)
    return found


@pytest.mark.parametrize("name", EIGHT)
def test_a_model_equals_one_process_under_every_layout(name: str, ranks: RankPool) -> None:
    spec = small(name)
    # `custom` is deep, and what it adds shows on two ranks.
    most = 2 if name == "custom" else 4
    layouts = legal(spec, list(all_layouts(spec.space, most)))
    layouts += parse_layouts(EIGHT[name], spec.space)
    assert len(layouts) > most
    bad: list[Row] = []
    with running(spec, ranks) as runner:
        for layout in layouts:
            row = runner.run(layout)
            assert row is not None
            if not row.ok:
                bad.append(row)
    assert bad == []


BREAKS = {
    "copy": ("gpt2", "tp=2,seq=off"),
    "gather_slices": ("gpt2", "tp=2"),
    "gather_sums": ("mixtral", "tp=2"),
    "norms_alone": ("llama3", "tp=2"),
    "router_alone": ("mixtral", "tp=2"),
    "bias_summed": ("gpt2", "tp=2,seq=off"),
    "bias_partial": ("gpt2", "tp=2,seq=off"),
    "experts_summed": ("mixtral", "ep=2"),
    "data_alone": ("gpt2", "dp=2"),
    "stages_alone": ("gpt2", "pp=2"),
    "mean_of_means": ("gpt2", "dp=2"),
    "dropout_local": ("gpt2", "tp=2"),
    "init_local": ("gpt2", "tp=2"),
    "positions_local": ("llama3", "cp=2"),
    "ring_open": ("bert", "cp=2"),
    "lookup_unmasked": ("gpt2", "tp=2"),
    "loss_local": ("gpt2", "tp=2"),
}


def test_there_is_a_layout_for_every_mutant() -> None:
    assert set(BREAKS) == set(MUTANTS)


@pytest.mark.parametrize("mutant", BREAKS)
def test_a_broken_rule_is_found(mutant: str, ranks: RankPool) -> None:
    name, text = BREAKS[mutant]
    spec = small(name)
    (layout,) = parse_layouts([text], spec.space)
    with running(spec, ranks) as runner:
        row = runner.run(layout, mutant)
    assert row is not None and not row.ok
    assert row.message is not None or row.first is not None


def test_the_first_tensor_that_differs_is_named_with_its_place(ranks: RankPool) -> None:
    spec = small("gpt2")
    (layout,) = parse_layouts(["tp=2"], spec.space)
    with running(spec, ranks) as runner:
        row = runner.run(layout, "dropout_local")
    assert row is not None
    assert row.first == "block decoder.0.attention"
    assert row.place is not None and row.place.endswith("models/gpt2.giant:25")


def test_a_layout_as_text_means_the_same_settings() -> None:
    spec = compile_spec(resources.model_path("mixtral"))
    space = Space.of(spec)
    for layout in all_layouts(space, 2):
        again = compile_spec(
            resources.model_path("mixtral"),
            overrides=[f"train.batch={layout.batch}", "train.microbatch=1"],
            parallel=SourceFile(layout.label, layout.section),
        )
        assert again.settings.parallel is not None
        text = parallel_text(again.settings.parallel)
        assert text.replace('auto(by="time")', "auto") == layout.section


def test_inputs_may_be_called_like_what_a_file_uses(ranks: RankPool) -> None:
    spec = SmallSpec(compile_spec(SourceFile("names.giant", TAKEN_TEXT)))
    with running(spec, ranks) as runner:
        rows = [runner.run(layout) for layout in parse_layouts(["pp=2", "dp=2"], spec.space)]
    assert all(row is not None and row.ok for row in rows), rows
