"""Editing the text of a spec: sizes, defaults, words. The rest of the file stays as it is."""

from __future__ import annotations

import re

from giantdsl.attrs import Attr, format_attr
from giantdsl.errors import InternalError


class SpecText:
    """A spec of `models/` on its way to becoming another one.

    What is to be replaced must be there: a model that was edited without its importer is our
    fault, so a miss is an InternalError.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def set_dim(self, name: str, value: Attr | str) -> None:
        """Give a name of `dims` another size. A str is an expression: `pad(50257, 128)`."""
        start, end = self._section("dims")
        body = self.text[start:end]
        written = value if isinstance(value, str) else format_attr(value)
        pattern = re.compile(
            rf"(?m)(?<![\w.])({name}(?:\s*:\s*\w+)?\s*=\s*)([^;\n#]*?)(\s*(?:[;\n#]))"
        )
        found = pattern.subn(lambda m: m[1] + written + m[3], body, count=1)
        if found[1] != 1:
            raise InternalError(f"`dims` of the model has no `{name}`")
        self.text = self.text[:start] + found[0] + self.text[end:]

    def set_default(self, primitive: str, key: str, value: Attr) -> None:
        """Give an argument of `default PRIMITIVE(…)` another value."""
        line = re.search(rf"(?m)^default {primitive}\(.*\)$", self.text)
        if line is None:
            raise InternalError(f"the model has no `default {primitive}`")
        found = re.subn(
            rf"\b{key}=[^,()]+(\([^()]*\))?", f"{key}={format_attr(value)}", line[0], count=1
        )
        if found[1] != 1:
            raise InternalError(f"`default {primitive}` of the model has no `{key}`")
        self.text = self.text[: line.start()] + found[0] + self.text[line.end() :]

    def replace(self, old: str, new: str, count: int = 1) -> None:
        """Replace a text that stands in the spec exactly `count` times."""
        if self.text.count(old) != count:
            raise InternalError(f"the model has `{old}` {self.text.count(old)} times, not {count}")
        self.text = self.text.replace(old, new)

    def drop_line(self, start: str) -> None:
        """Take out the one line that begins so."""
        found = re.subn(rf"(?m)^\s*{re.escape(start)}.*\n", "", self.text)
        if found[1] != 1:
            raise InternalError(f"the model has {found[1]} lines `{start}`")
        self.text = found[0]

    def drop_section(self, keyword: str) -> None:
        """Take out all sections of a kind: `train { … }`."""
        while re.search(rf"(?m)^{keyword}\b", self.text):
            start, end = self._section(keyword)
            start = self.text.rindex(keyword, 0, start)
            self.text = self.text[:start].rstrip("\n") + "\n" + self.text[end + 1 :].lstrip("\n")

    def keep_lines(self, keyword: str, start: str) -> None:
        """Leave in a section only the lines that begin so."""
        begin, end = self._section(keyword)
        kept = [x for x in self.text[begin:end].splitlines() if x.strip().startswith(start)]
        self.text = self.text[:begin] + "\n" + "".join(f"{x}\n" for x in kept) + self.text[end:]

    def set_comment(self, lines: list[str]) -> None:
        """Put other comments before the `model` line."""
        at = re.search(r"(?m)^model\b", self.text)
        if at is None:
            raise InternalError("the model has no `model` line")
        self.text = "".join(f"# {line}\n" for line in lines) + self.text[at.start() :]

    def _section(self, keyword: str) -> tuple[int, int]:
        """The text between the braces of the first such section: [start, end)."""
        head = re.search(rf"(?m)^{keyword}\b[^{{\n]*\{{", self.text)
        if head is None:
            raise InternalError(f"the model has no `{keyword}` section")
        depth = 0
        for at, char in _code(self.text, head.end() - 1):
            depth += (char == "{") - (char == "}")
            if depth == 0:
                return head.end(), at
        raise InternalError(f"`{keyword}` of the model is never closed")


def _code(text: str, start: int) -> list[tuple[int, str]]:
    """Braces that are not in a comment or a string."""
    tokens = re.compile(r'#[^\n]*|"(?:[^"\\\n]|\\.)*"|[{}]')
    return [(m.start(), m[0]) for m in tokens.finditer(text, start) if m[0] in "{}"]
