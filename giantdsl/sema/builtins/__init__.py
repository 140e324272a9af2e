"""The language's operators: one table, one small file for each family."""

from giantdsl.sema.builtins.base import Builtin
from giantdsl.sema.builtins.table import BUILTINS

__all__ = ["BUILTINS", "Builtin"]
