"""Python names for the spec's names: the user's own wherever that is possible."""

from __future__ import annotations

import keyword
from collections.abc import Container

TAKEN = frozenset(
    {"self", "torch", "nn", "F", "math", "noise", "seed", "name", "Tensor", "NamedTuple"}
    | {"checkpoint", "lru_cache", "super", "int", "float", "bool", "str", "tuple", "dict", "print"}
    | {"range", "enumerate", "losses", "counts", "len", "axes"}
)
# What nn.Module itself has: a layer of this name would hide it.
_MODULE = frozenset(
    [
        "add_module",
        "apply",
        "axes",
        "bfloat16",
        "buffers",
        "call_super_init",
        "children",
        "compile",
        "cpu",
        "cuda",
        "double",
        "dump_patches",
        "eval",
        "extra_repr",
        "float",
        "forward",
        "get_buffer",
        "get_extra_state",
        "get_parameter",
        "get_submodule",
        "half",
        "init_weights",
        "ipu",
        "load_state_dict",
        "loss_counts",
        "losses",
        "modules",
        "mtia",
        "named_buffers",
        "named_children",
        "named_modules",
        "named_parameters",
        "parameters",
        "register_buffer",
        "register_module",
        "register_parameter",
        "requires_grad_",
        "set_extra_state",
        "set_submodule",
        "share_memory",
        "state_dict",
        "to",
        "to_empty",
        "train",
        "training",
        "type",
        "xpu",
        "zero_grad",
    ]
)


def variable_name(name: str, reserved: Container[str]) -> str:
    """A variable called `name`, with an underscore where Python or the file use that already.

    Then names that differ by underscores only get one more as well, so that they still differ.
    """
    name = name.replace("'", "_prime")
    stem = name.rstrip("_")
    used = (n for n in (name, stem) if keyword.iskeyword(n) or n in TAKEN or n in reserved)
    return f"{name}_" if any(used) else name


def clashes_with_module(member: str) -> bool:
    """Whether an attribute of this name would hide one of nn.Module's."""
    return member in _MODULE or keyword.iskeyword(member)


def class_name(symbol: str, reserved: Container[str]) -> str:
    while symbol in reserved or symbol in TAKEN or keyword.iskeyword(symbol):
        symbol += "_"
    return symbol
