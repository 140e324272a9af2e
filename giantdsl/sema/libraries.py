"""`import … from "std/blocks"`: other files and what is taken from them."""

from __future__ import annotations

from collections.abc import Callable

from giantdsl.diagnostics import Diagnostic, Label, Sink, did_you_mean
from giantdsl.sema.builtins import BUILTINS
from giantdsl.sema.naming import check_parameters, check_primes
from giantdsl.sema.scalars import FUNCTIONS
from giantdsl.sema.scope import BlockRef, Library
from giantdsl.source import SourceFile
from giantdsl.syntax import ast

Loader = Callable[[str, SourceFile], ast.File | None]
"""Finds and parses the file an import names, seen from another file; None if there is none.
Syntax errors go to the sink it was made with."""


def build_library(
    file: ast.File, load: Loader, sink: Sink, open_files: tuple[str, ...] = ()
) -> Library:
    """Blocks, externs and defaults a file defines or imports."""
    decls = [d for item in file.items if isinstance(item, ast.Dims) for d in item.decls]
    library = Library(file, frozenset(d.name.text for d in decls))
    check_primes(file, sink)
    check_parameters(file, library.sizes, sink)
    places: dict[str, ast.Name] = {}
    for item in file.items:
        if isinstance(item, ast.Import):
            _take_imports(library, item, load, sink, (*open_files, file.source.name), places)
        elif isinstance(item, ast.Block | ast.Extern):
            if _is_taken(item.name, places, sink):
                continue
            if isinstance(item, ast.Block):
                library.blocks[item.name.text] = BlockRef(item, library)
            else:
                library.externs[item.name.text] = item
        elif isinstance(item, ast.Default):
            _default(library, item, sink)
    return library


def _is_taken(name: ast.Name, places: dict[str, ast.Name], sink: Sink) -> bool:
    text = name.text
    if text in BUILTINS or text in FUNCTIONS:
        sink.add(
            Diagnostic(
                "G104",
                f"`{text}` is an operation of the language",
                Label(name.span, "a second meaning"),
                "use another name",
            )
        )
        return True
    first = places.setdefault(text, name)
    if first is not name:
        sink.add(
            Diagnostic(
                "G104",
                f"block `{text}` is defined twice",
                Label(name.span, "again here"),
                "use another name",
                (Label(first.span, "first here"),),
            )
        )
        return True
    return False


def _default(library: Library, item: ast.Default, sink: Sink) -> None:
    name = item.primitive.text
    builtin = BUILTINS.get(name)
    if builtin is None:
        sink.add(
            Diagnostic(
                "G103",
                f"no operation `{name}`",
                Label(item.primitive.span, "not defined"),
                did_you_mean(name, BUILTINS, "defaults are for operations of the language"),
            )
        )
        return
    known = [p.name for p in builtin.signature.params if p.optional]
    for arg in item.args:
        param = builtin.signature.param(arg.name.text) if arg.name is not None else None
        if arg.name is not None and param is not None and not param.optional:
            sink.add(
                Diagnostic(
                    "G207",
                    f"`{param.name}` of `{name}` is given in each call",
                    Label(arg.name.span, "has no default"),
                    f"defaults are for: {', '.join(known)}" if known else None,
                )
            )
        elif arg.name is not None and param is None:
            sink.add(
                Diagnostic(
                    "G207",
                    f"`{name}` has no parameter `{arg.name.text}`",
                    Label(arg.name.span, "unknown"),
                    did_you_mean(arg.name.text, known, f"it has: {', '.join(known)}"),
                )
            )
    library.defaults[name] = (*library.defaults.get(name, ()), *item.args)


def _take_imports(
    library: Library,
    item: ast.Import,
    load: Loader,
    sink: Sink,
    open_files: tuple[str, ...],
    places: dict[str, ast.Name],
) -> None:
    file = load(item.path.value, item.span.source)
    if file is None:
        sink.add(
            Diagnostic(
                "G107",
                f"no file `{item.path.value}.giant` to import from",
                Label(item.path.span, "not found"),
                "paths are relative to this file; `std/…` is the library that comes with giantdsl",
            )
        )
        return
    if file.source.name in open_files:
        sink.add(
            Diagnostic(
                "G106",
                f"`{item.path.value}` imports itself",
                Label(item.path.span, "a circle of imports"),
                "move what both need into a third file",
            )
        )
        return
    other = build_library(file, load, sink, open_files)
    for name in item.names:
        if name.text not in other.blocks and name.text not in other.externs:
            known = [*other.blocks, *other.externs]
            sink.add(
                Diagnostic(
                    "G103",
                    f"no block `{name.text}` in `{item.path.value}`",
                    Label(name.span, "not defined there"),
                    did_you_mean(name.text, known, f"it has: {', '.join(known)}"),
                )
            )
        elif not _is_taken(name, places, sink):
            if name.text in other.blocks:
                library.blocks[name.text] = other.blocks[name.text]
            else:
                library.externs[name.text] = other.externs[name.text]
