"""Diagnostics for tools: plain JSON values, and SARIF 2.1.0 for code review systems.

Lines and columns count from 1, a column counts characters, the end is the first character that
no longer belongs.
"""

from __future__ import annotations

from collections.abc import Iterable

from giantdsl.diagnostics.diagnostic import Diagnostic, Fix, Label
from giantdsl.source import Span

Json = dict[str, object]


def diagnostic_to_json(diagnostic: Diagnostic) -> Json:
    """One diagnostic with stable keys."""
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity.value,
        "message": diagnostic.message,
        "label": diagnostic.primary.text,
        "help": diagnostic.help,
        **_place(diagnostic.primary.span),
        "related": [_label(other) for other in diagnostic.others],
        "fixes": [_fix(fix) for fix in diagnostic.fixes],
    }


def _place(span: Span) -> Json:
    return {
        "file": span.source.name,
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line,
        "end_column": span.end_column,
    }


def _label(label: Label) -> Json:
    return {"message": label.text, **_place(label.span)}


def _fix(fix: Fix) -> Json:
    return {"text": fix.text, **_place(fix.span)}


def to_sarif(diagnostics: Iterable[Diagnostic], version: str) -> Json:
    """A SARIF log of one run. `version` is giantdsl's."""
    found = list(diagnostics)
    rules = [{"id": code} for code in dict.fromkeys(d.code for d in found)]
    driver = {"name": "giantdsl", "version": version, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "results": [_sarif_result(d) for d in found],
            }
        ],
    }


def _sarif_result(diagnostic: Diagnostic) -> Json:
    help_ = f"\n{diagnostic.help}" if diagnostic.help else ""
    return {
        "ruleId": diagnostic.code,
        "level": diagnostic.severity.value,
        "message": {"text": f"{diagnostic.message}{help_}"},
        "locations": [_sarif_place(diagnostic.primary)],
        "relatedLocations": [_sarif_place(other) for other in diagnostic.others],
        "fixes": [_sarif_fix(fix) for fix in diagnostic.fixes],
    }


def _sarif_place(label: Label) -> Json:
    place: Json = {
        "physicalLocation": {
            "artifactLocation": {"uri": label.span.source.name},
            "region": _region(label.span),
        }
    }
    if label.text:
        place["message"] = {"text": label.text}
    return place


def _sarif_fix(fix: Fix) -> Json:
    change = {"deletedRegion": _region(fix.span), "insertedContent": {"text": fix.text}}
    artifact = {"uri": fix.span.source.name}
    return {"artifactChanges": [{"artifactLocation": artifact, "replacements": [change]}]}


def _region(span: Span) -> Json:
    return {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
    }
