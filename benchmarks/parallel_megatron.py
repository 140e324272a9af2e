"""Megatron-core's own layer on the CPU, where it is installed: `pip install --no-deps megatron-core`.

It asks CUDA for its device and its random state, and is answered for the CPU.
Its layer norm refuses sliced sequences without Apex or Transformer Engine, so it has no such row.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn


def has_megatron() -> bool:
    return importlib.util.find_spec("megatron") is not None


def megatron_layers(
    hidden: int, heads: int, tokens: int, ranks: int, count: int
) -> list[nn.Module]:
    """Of one of `ranks` tensor ranks; the default process group is there already."""
    with on_cpu():
        from megatron.core import parallel_state
        from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
        from megatron.core.tensor_parallel import random
        from megatron.core.transformer import TransformerConfig
        from megatron.core.transformer.spec_utils import build_module

        # Asked whenever a layer runs, so these stay.
        cpu = torch.device("cpu")
        torch.cuda.current_device = lambda: cpu  # type: ignore[assignment, return-value]
        random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
        random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
        if not parallel_state.model_parallel_is_initialized():
            parallel_state.initialize_model_parallel(ranks, create_gloo_process_groups=False)
        random.initialize_rng_tracker()
        state = {"model-parallel-rng": torch.get_rng_state()}
        random.get_cuda_rng_tracker().set_states(state)
        config = TransformerConfig(
            num_layers=count,
            hidden_size=hidden,
            num_attention_heads=heads,
            tensor_model_parallel_size=ranks,
            use_cpu_initialization=True,
            params_dtype=torch.float32,
            hidden_dropout=0.0,
            attention_dropout=0.0,
            bias_activation_fusion=False,
            masked_softmax_fusion=False,
            bias_dropout_fusion=False,
            gradient_accumulation_fusion=False,
        )
        spec = get_gpt_layer_local_spec()
        made = [build_module(spec, config=config, layer_number=i + 1) for i in range(count)]
    return [BatchFirst(layer, tokens) for layer in made]


class BatchFirst(nn.Module):
    """x [b, s, d] as Megatron's layer wants it, [s, b, d]; causal."""

    def __init__(self, layer: nn.Module, tokens: int) -> None:
        super().__init__()
        self.layer = layer
        self.hidden = torch.ones(1, 1, tokens, tokens, dtype=torch.bool).triu(1)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.layer(x.transpose(0, 1), attention_mask=self.hidden)
        return y.transpose(0, 1)


@contextmanager
def on_cpu() -> Iterator[None]:
    """What Megatron-core makes on CUDA is made on the CPU."""
    plain = torch.zeros

    def zeros(*args: Any, **given: Any) -> Tensor:
        if str(given.get("device", "")).startswith("cuda"):
            given["device"] = "cpu"
        return plain(*args, **given)

    with mock.patch.object(torch, "zeros", zeros):
        yield
