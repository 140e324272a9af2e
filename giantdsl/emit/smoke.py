"""`python FILE.py`: the emitted file tries itself."""

from __future__ import annotations

from giantdsl.emit.names import variable_name
from giantdsl.emit.wrap import wrap
from giantdsl.ir.nodes import Op, Program, Value, statements_of
from giantdsl.ir.parameters import count_parameters, extent
from giantdsl.ir.types import BOOL, FLOAT, INT, AxisKind, base_axis

_LARGE = 2_000_000_000
_BATCH = 2


def smoke_test(program: Program, class_name: str, reserved: frozenset[str]) -> list[str]:
    """Lines that build the model, count its parameters and run a random batch."""
    large = count_parameters(program) > _LARGE
    routed = any(
        isinstance(s, Op) and s.kind == "topk" for f in program.functions for s in statements_of(f)
    )
    lines = ['if __name__ == "__main__":']
    if large:
        lines += [
            "    # Too large to allocate for a try: shapes only.",
            '    torch.set_default_device("meta")',
        ]
    lines.append(f"    model = {class_name}().eval()")
    if not large:
        lines.append("    model.init_weights(0)")
    count = "sum(p.numel() for p in model.parameters())"
    lines.append(f'    print(f"{program.model}: {{{count}:,}} parameters")')
    if large and routed:
        return [*lines, '    print("which expert gets what is data: not tried without memory")']
    lines.append("    batch = {")
    for value in program.forward.params:
        name = variable_name(value.name, reserved)
        lines += wrap(f'        "{name}": {_random(program, value)},')
    lines += ["    }", "    with torch.no_grad():", "        outputs = model(**batch)"]
    many = len(program.forward.results) > 1
    lines.append(f"    for output in {'outputs' if many else '[outputs]'}:")
    lines.append('        print("output", list(output.shape))')
    if program.forward.losses and not large:
        lines += [
            "    for name, loss in model.losses.items():",
            '        print(f"loss {name} {loss:.4f}")',
        ]
    return lines


def _random(program: Program, value: Value) -> str:
    sizes = [
        _BATCH if program.axes[base_axis(a)].kind is AxisKind.BATCH else extent(program, a)
        for a in value.type.axes
    ]
    shape = f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"
    dtype = value.type.dtype
    if dtype == FLOAT:
        return f"torch.randn({', '.join(map(str, sizes)) or '()'})"
    if dtype == BOOL:
        return f"torch.ones({', '.join(map(str, sizes))}, dtype=torch.bool)"
    if dtype == INT:
        return f"torch.zeros({', '.join(map(str, sizes))}, dtype=torch.long)"
    return f"torch.randint({extent(program, dtype)}, {shape})"
