"""Text to tree: reading, lexing, parsing, syntax diagnostics, canonical layout."""

from giantdsl.syntax.parser import parse_expression, parse_file, parse_setting
from giantdsl.syntax.read import read_source

__all__ = ["parse_expression", "parse_file", "parse_setting", "read_source"]
