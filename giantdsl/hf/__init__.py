"""Checkpoints of Hugging Face `transformers`: load, save, import a configuration."""

from giantdsl.hf.load import load
from giantdsl.hf.save import save, save_parameters
from giantdsl.weights.hf_config import import_spec

__all__ = ["import_spec", "load", "save", "save_parameters"]
