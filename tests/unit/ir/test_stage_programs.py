"""What only programs of stages have: loops that start later, weights held for other stages."""

from __future__ import annotations

import pytest

from giantdsl.errors import InternalError
from giantdsl.ir.parameters import count_parameters, iter_parameters
from giantdsl.ir.text import format_program, parse_program
from giantdsl.ir.verify import verify

STAGE = """\
program made "made.giant"
axis b: batch ; 1
axis d: feature = 4 ; 1
axis v: feature = 7 ; 1

function Layer "layer" (%x.0: [b, d]) { ; 2
  %1: [b, d] = linear(%x.0, contracted=[d], created=[d], square=true, per=[]) as map ; 3
    weight @map.weight: [d -> d] normal(0.02)
  return (%1)
}

function Made "forward" (%x.0: [b, d]) { ; 5
  hold @table.weight: [v -> d] table normal(0.02) of Embed via embed
  repeat 2 from (%x.0) first 3 pattern [0*2] { ; 6
    body (%x.1: [b, d]) {
      %x.2: [b, d] = call Layer(%x.1) as layer ; 6
      yield (%x.2)
    }
  } -> (%x.3: [b, d])
  %4: [b, v] = linear(%x.3, contracted=[d], created=[v], square=false, per=[]) ; 7
    weight tied @table.weight via embed
  return (%4)
}
"""


def test_text_names_and_counts() -> None:
    program = parse_program(STAGE)
    verify(program)
    assert format_program(program) == STAGE
    names = [p.name for p in iter_parameters(program)]
    assert names == ["embed.table.weight", "layer.3.map.weight", "layer.4.map.weight"]
    assert count_parameters(program) == 7 * 4 + 2 * 4 * 4


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("via embed\n  return", "via other\n  return", "a tie goes through other"),
        ("of Embed via embed", "of Embed via layer", "layer.table is held, but there is a layer"),
        (
            "  repeat",
            "  hold @table.weight: [v -> d] table normal(0.02) of Embed via embed\n  repeat",
            "held twice",
        ),
    ],
)
def test_what_is_held_is_what_is_tied(old: str, new: str, message: str) -> None:
    assert old in STAGE
    with pytest.raises(InternalError, match=message):
        verify(parse_program(STAGE.replace(old, new, 1)))


def test_only_forward_holds_weights_of_others() -> None:
    hold = "  hold @table.weight: [v -> d] table normal(0.02)\n  %1:"
    with pytest.raises(InternalError, match="outside `forward`"):
        verify(parse_program(STAGE.replace("  %1:", hold, 1)))
