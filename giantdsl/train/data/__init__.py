"""Data: text, token files, objectives, blends; samples as pure functions of their number."""

from giantdsl.train.data.build import build_source
from giantdsl.train.data.prepare import Inspection, inspect, prepare

__all__ = ["Inspection", "build_source", "inspect", "prepare"]
