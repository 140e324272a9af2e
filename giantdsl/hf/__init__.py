"""Checkpoints of Hugging Face `transformers`: load, save, import a configuration."""

from giantdsl.hf.load import load
from giantdsl.hf.save import export, save, save_parameters
from giantdsl.weights.hf_config import import_spec

__all__ = ["export", "import_spec", "load", "save", "save_parameters"]
