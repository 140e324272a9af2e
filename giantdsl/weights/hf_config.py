"""A Hugging Face `config.json` to the text of a spec.

Each family starts from its file in `models/` and fills in sizes. A key that is not understood
is refused by name: a setting passed over in silence would be another function with the same
weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from giantdsl import resources
from giantdsl.diagnostics import nearest
from giantdsl.errors import SettingsError
from giantdsl.weights.hf_families import bert, gpt2, llama, mixtral, t5, vit
from giantdsl.weights.hf_reader import ConfigReader, read_config
from giantdsl.weights.spec_text import SpecText

Family = Callable[[ConfigReader, SpecText], None]

FAMILIES: Mapping[str, tuple[str, Family]] = MappingProxyType(
    {
        "gpt2": ("gpt2", gpt2.apply),
        "llama": ("llama3", llama.apply),
        "bert": ("bert", bert.apply),
        "t5": ("t5", t5.apply),
        "mixtral": ("mixtral", mixtral.apply),
        "vit": ("vit", vit.apply),
    }
)
"""By `model_type`: the model of ours it starts from and what fills it in."""


def import_spec(directory: str | Path, read_model: Callable[[str], str] | None = None) -> str:
    """The text of a spec for a checkpoint folder.

    `read_model` gives the text of one of our models by name; the default reads what ships with
    the package. Raises SettingsError naming the key when something is not understood.
    """
    folder = Path(directory)
    config = read_config(folder)
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        near = nearest(kind, FAMILIES) if isinstance(kind, str) else None
        known = f"did you mean `{near}`?" if near else f"understood are {', '.join(FAMILIES)}"
        raise SettingsError(f"{config.place}: `model_type` is {kind!r}; {known}")
    model, apply = FAMILIES[kind]
    spec = SpecText((read_model or shipped_model)(model))
    apply(config, spec)
    config.finish()
    spec.drop_section("profile")
    spec.drop_section("train")
    spec.keep_lines("parallel", "shard")
    spec.set_comment([f"Made from {folder.name}/config.json by `giantdsl hf import`."])
    return spec.text.rstrip("\n") + "\n"


def shipped_model(name: str) -> str:
    """The text of a model that ships with the package."""
    return resources.model_path(name).read_text(encoding="utf-8")
