"""What is said about each kind of syntax error: a table, the special before the general."""

from giantdsl.syntax.cases.blocks import BLOCKS
from giantdsl.syntax.cases.braces import BRACES
from giantdsl.syntax.cases.case import ANY, Area, Case
from giantdsl.syntax.cases.expressions import EXPRESSIONS
from giantdsl.syntax.cases.file import FILE
from giantdsl.syntax.cases.statements import STATEMENTS

CASES: tuple[Case, ...] = FILE + BLOCKS + BRACES + STATEMENTS + EXPRESSIONS

__all__ = ["ANY", "CASES", "Area", "Case"]
