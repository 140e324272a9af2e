"""T5 version 1.0: `T5ForConditionalGeneration`."""

from __future__ import annotations

from giantdsl.weights.hf_reader import ConfigReader
from giantdsl.weights.spec_text import SpecText


def apply(config: ConfigReader, spec: SpecText) -> None:
    """Fill in `models/t5.giant`."""
    spec.set_dim("d", config.whole("d_model", 512))
    spec.set_dim("heads", config.whole("num_heads", 8))
    spec.set_dim("hd", config.whole("d_kv", 64))
    spec.set_dim("ff", config.whole("d_ff", 2048))
    spec.set_dim("vocab", config.whole("vocab_size", 32128))
    layers = config.whole("num_layers", 6)
    spec.set_dim("layers", layers)
    decoders = config.whole("num_decoder_layers", layers)
    if decoders != layers:
        spec.replace("repeat layers { y", f"repeat {decoders} {{ y")
    spec.set_dim("buckets", config.whole("relative_attention_num_buckets", 32))
    far = config.whole("relative_attention_max_distance", 128)
    spec.replace("far=128", f"far={far}", count=2)
    spec.set_default("rmsnorm", "eps", config.number("layer_norm_epsilon", 1e-6))
    spec.set_dim("drop", config.share("dropout_rate", 0.1))
    if config.get("n_positions") is not None:
        spec.set_dim("src", config.whole("n_positions"))
    config.word("feed_forward_proj", "relu", ("relu",))
    config.word("dense_act_fn", "relu", ("relu",))
    config.must("is_gated_act", False)
    config.must("is_encoder_decoder", True)
    config.must("tie_word_embeddings", True)
    config.must("scale_decoder_outputs", True)
    config.ignore("initializer_factor", "classifier_dropout", "output_past")
