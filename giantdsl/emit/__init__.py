"""Programs to readable PyTorch. Torch itself is not imported here: the prelude is text."""

from giantdsl.emit.module import EmittedModule, emit_module

__all__ = ["EmittedModule", "emit_module"]
