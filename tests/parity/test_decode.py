"""Writing with a key-value cache gives the scores of the whole context run again."""

from __future__ import annotations

import pytest
import torch

from giantdsl.driver import compile_spec, make_plan
from giantdsl.resources import model_path
from giantdsl.runtime.loader import build_module
from giantdsl.source import SourceFile
from giantdsl.train.generate import Scores, language_model

ONE = ["parallel.dp=1", "parallel.tp=1", "parallel.pp=1", "parallel.ep=1"]


@pytest.mark.parametrize("name", ["gpt2", "llama3", "mixtral", "alternating"])
def test_the_cache_changes_nothing(name: str) -> None:
    plan = make_plan(compile_spec(model_path(name), profiles=["tiny"], overrides=ONE))
    module = build_module(plan, seed=1, dtype=torch.float64).eval()
    with torch.no_grad():
        for p in module.parameters():
            p.add_(
                torch.randn(p.shape, dtype=p.dtype, generator=torch.Generator().manual_seed(3))
                * 0.1
            )
    shape = language_model(plan)
    scores = Scores(module, plan, shape)
    assert scores.is_cached
    total = shape.context + 4
    ids = torch.randint(shape.num_classes, (total,), generator=torch.Generator().manual_seed(0))
    for end in (5, 6, 7, 20, shape.context - 1, shape.context, total - 1, total):
        found = scores.next(ids[:end].tolist())
        with torch.no_grad():
            whole = module(**{shape.tokens.name: ids[None, max(0, end - shape.context) : end]})
        assert torch.allclose(found, whole[0, -1], rtol=1e-10, atol=1e-10), end
    assert not scores.is_cached


GPT2 = model_path("gpt2").read_text().replace('weights hf from "std/hf/gpt2"', "")
POOLED = "logits = logits * mean(logits, over=s)\n  return logits"
NO = {
    "encoder and decoder": model_path("t5").read_text(),
    "sees what follows": GPT2.replace("causal=true, ", ""),
    "pools the sequence": GPT2.replace("return logits", POOLED),
    "has weights for each place": GPT2.replace(
        "return logits", "return logits * param(init=normal(1)) as gain -> [s, vocab]"
    ),
}


@pytest.mark.parametrize("why", NO)
def test_what_cannot_be_continued_has_no_cached_form(why: str) -> None:
    spec = compile_spec(SourceFile(str(model_path("gpt2")), NO[why]), overrides=ONE)
    assert make_plan(spec).decode_source == ""
