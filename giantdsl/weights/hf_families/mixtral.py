"""Mixtral: `MixtralForCausalLM`."""

from __future__ import annotations

from giantdsl.weights.hf_families.llama import set_decoder
from giantdsl.weights.hf_families.shared import short
from giantdsl.weights.hf_reader import ConfigReader
from giantdsl.weights.spec_text import SpecText


def apply(config: ConfigReader, spec: SpecText) -> None:
    """Fill in `models/mixtral.giant`."""
    set_decoder(config, spec, context=131072, theta=1e6, eps=1e-5)
    spec.set_dim("ff", config.whole("intermediate_size", 14336))
    spec.set_dim("vocab", config.whole("vocab_size", 32000))
    experts = config.whole("num_local_experts", 8)
    chosen = config.whole("num_experts_per_tok", 2)
    if chosen > experts:
        raise config.wrong("num_experts_per_tok", chosen, f"at most {experts}")
    spec.set_dim("experts", experts)
    spec.replace("topk(probs, 2,", f"topk(probs, {chosen},")
    balance = short(config.number("router_aux_loss_coef", 0.001))
    spec.replace("loss balance = 0.02 /", f"loss balance = {balance} /")
    config.must("router_jitter_noise", 0, 0.0)
    config.ignore("output_router_logits")
    if config.get("sliding_window") is not None:
        window = config.whole("sliding_window")
        spec.replace("causal=true", f"causal=true, window={window}")
