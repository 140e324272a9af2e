"""What is wrong with a spec, as values; how it is shown is somebody else's business."""

from giantdsl.diagnostics.diagnostic import Diagnostic, Fix, Label, Severity
from giantdsl.diagnostics.render import render, render_all
from giantdsl.diagnostics.sink import Sink
from giantdsl.diagnostics.suggest import did_you_mean, nearest

__all__ = [
    "Diagnostic",
    "Fix",
    "Label",
    "Severity",
    "Sink",
    "did_you_mean",
    "nearest",
    "render",
    "render_all",
]
