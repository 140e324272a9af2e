"""`weights hf from "…"`: the library's maps, and G506."""

from __future__ import annotations

from pathlib import Path

from giantdsl import resources
from giantdsl.diagnostics import Diagnostic, Sink
from giantdsl.source import SourceFile
from giantdsl.syntax import ast, parse_file
from giantdsl.weights.library import SHIPPED
from giantdsl.weights.resolve import check_maps
from giantdsl.weights.tree import WeightsNode

from .made import GPT_MAP, gpt, span_text


def check(text: str, library: dict[str, str]) -> tuple[dict[str, WeightsNode], list[Diagnostic]]:
    sink = Sink()
    tree = parse_file(SourceFile("models/made.giant", text), sink)

    def load(name: str, importer: SourceFile) -> ast.File | None:
        assert importer is tree.source
        if name not in library:
            return None
        return parse_file(SourceFile(f"{name}.giant", library[name]), sink)

    found = check_maps(tree, gpt(), load, sink)
    return found, sink.diagnostics


def test_a_library_map_takes_the_place_of_the_section() -> None:
    found, faults = check('weights hf from "maps/gpt"', {"maps/gpt": GPT_MAP})
    assert faults == []
    assert found["hf"].entries is not None
    assert found["hf"].span.source.name == "maps/gpt.giant"


def test_sections_of_any_name() -> None:
    text = GPT_MAP.replace("weights hf", "weights old") + GPT_MAP
    found, faults = check(text, {})
    assert faults == []
    assert list(found) == ["old", "hf"]


def test_no_such_file() -> None:
    _, faults = check('weights hf from "std/hf/gtp2"', {})
    (fault,) = faults
    assert (fault.code, fault.message) == ("G506", "no checkpoint map `std/hf/gtp2`")
    assert fault.help == "did you mean `std/hf/gpt2`?"
    assert [(span_text(f.span), f.text) for f in fault.fixes] == [
        ('"std/hf/gtp2"', '"std/hf/gpt2"')
    ]


def test_nothing_near_lists_what_there_is() -> None:
    _, (fault,) = check('weights hf from "elsewhere"', {})
    assert fault.help is not None and "`std/hf/gpt2`" in fault.help


def test_a_library_without_that_map() -> None:
    _, (fault,) = check('weights hff from "maps/gpt"', {"maps/gpt": GPT_MAP})
    assert (fault.code, fault.message) == ("G506", "`maps/gpt` has no `weights hff`")
    assert fault.primary.text == "has `weights hf`"
    assert [(span_text(f.span), f.text) for f in fault.fixes] == [("hff", "hf")]


def test_an_incomplete_library_map_points_at_both_files() -> None:
    library = {"maps/gpt": GPT_MAP.replace('  head = "cls"\n', "")}
    _, (fault,) = check('weights hf from "maps/gpt"', library)
    assert fault.code == "G502"
    assert fault.primary.span.source.name == "models/made.giant"
    library = {"maps/gpt": GPT_MAP.replace("attention.out", "attention.oot")}
    _, (fault,) = check('weights hf from "maps/gpt"', library)
    assert (fault.code, fault.primary.span.source.name) == ("G501", "maps/gpt.giant")


def test_one_name_twice() -> None:
    _, (fault,) = check(GPT_MAP + GPT_MAP, {})
    assert (fault.code, fault.message) == ("G503", "`weights hf` is written twice")


def test_the_list_of_shipped_maps_is_what_ships() -> None:
    folder = resources.folder("grammar") / "std" / "hf"
    assert sorted(SHIPPED) == sorted(f"std/hf/{Path(p).stem}" for p in folder.glob("*.giant"))
