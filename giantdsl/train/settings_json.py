"""Train settings as JSON and back, so that a run directory tells how it was made."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from giantdsl.attrs import Attr, Config, format_attr
from giantdsl.settings.values import TrainSettings


def settings_to_json(settings: TrainSettings) -> dict[str, Any]:
    """Every setting by name; a call becomes `{"call": …, "args": …, "kwargs": …}`."""
    return {f.name: _to_json(getattr(settings, f.name)) for f in fields(settings)}


def settings_from_json(values: dict[str, Any]) -> TrainSettings:
    """The inverse. Settings that this version does not know are left out."""
    known = {f.name for f in fields(TrainSettings)}
    return TrainSettings(**{k: _from_json(v) for k, v in values.items() if k in known})


def changed_settings(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """`name: old -> new` for each setting that differs, in the language's words."""
    return [
        f"{name}: {_words(before.get(name))} -> {_words(now.get(name))}"
        for name in [*now, *(name for name in before if name not in now)]
        if before.get(name) != now.get(name)
    ]


def _words(value: Any) -> str:
    return format_attr(_from_json(value))


def _to_json(value: Attr) -> Any:
    if isinstance(value, Config):
        return {
            "call": value.name,
            "args": [_to_json(v) for v in value.args],
            "kwargs": {k: _to_json(v) for k, v in value.kwargs},
        }
    if isinstance(value, tuple):
        return [_to_json(v) for v in value]
    return value


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        args = tuple(_from_json(v) for v in value["args"])
        return Config(
            value["call"], args, tuple((k, _from_json(v)) for k, v in value["kwargs"].items())
        )
    if isinstance(value, list):
        return tuple(_from_json(v) for v in value)
    return value
