"""ViT with a classifier: `ViTForImageClassification`."""

from __future__ import annotations

from giantdsl.weights.hf_families.shared import GELU, check_divides, set_heads
from giantdsl.weights.hf_reader import ConfigReader
from giantdsl.weights.spec_text import SpecText


def apply(config: ConfigReader, spec: SpecText) -> None:
    """Fill in `models/vit.giant`."""
    width, heads = config.whole("hidden_size", 768), config.whole("num_attention_heads", 12)
    check_divides(config, "num_attention_heads", width, heads)
    set_heads(spec, width, heads, width // heads)
    inner = config.whole("intermediate_size", 3072)
    if inner != 4 * width:
        spec.set_dim("ff", inner)
    image, patch = _pair(config, "image_size", 224), _pair(config, "patch_size", 16)
    for count, size, pixels, part in zip(("ny", "nx"), ("py", "px"), image, patch, strict=True):
        if pixels % part:
            raise config.wrong("patch_size", part, f"a divisor of the {pixels} pixels")
        spec.set_dim(count, pixels // part)
        spec.set_dim(size, part)
    spec.replace("# 14 x 14 patches of 16 x 16 pixels", "# ny x nx patches of py x px pixels")
    spec.replace(" = 224 x 224", "")
    spec.set_dim("c", config.whole("num_channels", 3))
    spec.set_dim("layers", config.whole("num_hidden_layers", 12))
    spec.set_dim("classes", _classes(config))
    spec.set_default("layernorm", "eps", config.number("layer_norm_eps", 1e-12))
    act = GELU[config.word("hidden_act", "gelu", tuple(GELU))]
    spec.replace("gelu(", f"{act}(")
    config.must("qkv_bias", True)
    config.must("hidden_dropout_prob", 0, 0.0)
    config.must("attention_probs_dropout_prob", 0, 0.0)
    # The decoder of masked-image pre-training and a pooler: this model has neither.
    config.ignore("encoder_stride", "pooler_act", "pooler_output_size")


def _pair(config: ConfigReader, key: str, default: int) -> tuple[int, int]:
    """One size for both sides, or [height, width]."""
    value = config.get(key, default)
    sides = value if isinstance(value, list) else [value, value]
    match sides:
        case [int() as high, int() as wide] if high >= 1 and wide >= 1:
            return high, wide
    raise config.wrong(key, value, "a size or [height, width]")


def _classes(config: ConfigReader) -> int:
    """Classes are counted by their labels; without any there are two."""
    labels = config.get("id2label", {"0": "", "1": ""})
    config.ignore("label2id")
    return config.whole("num_labels", len(labels) if isinstance(labels, dict) else None)
