"""Trees and their spans."""

from __future__ import annotations

import pytest

from giantdsl.diagnostics import Sink
from giantdsl.source import SourceFile
from giantdsl.syntax import ast, parse_expression, parse_setting
from giantdsl.syntax.equal import ast_equal

from .helpers import SPECS, expression, parse_clean


def _statements(text: str) -> tuple[ast.Statement, ...]:
    item = parse_clean(f"block f(x[b]) -> [b] {{\n{text}\n}}").items[0]
    assert isinstance(item, ast.Block)
    return item.body.statements


def _statement(text: str) -> ast.Statement:
    (statement,) = _statements(text)
    return statement


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_spec_parses_and_every_span_lies_in_its_parent(path: object) -> None:
    from pathlib import Path

    assert isinstance(path, Path)
    file = parse_clean(path.read_text(encoding="utf-8"))
    assert file.items
    for item in file.items:
        _check_spans(item)


def _check_spans(node: ast.Node) -> None:
    assert node.span.start < node.span.end
    text = node.span.text
    assert text == text.strip()
    for name in getattr(type(node), "__slots__", ()):
        for child in _children(getattr(node, name)):
            assert node.span.start <= child.span.start <= child.span.end <= node.span.end
            _check_spans(child)


def _children(value: object) -> list[ast.Node]:
    if isinstance(value, ast.Node):
        return [value]
    return [x for x in value if isinstance(x, ast.Node)] if isinstance(value, tuple) else []


def test_sections() -> None:
    file = parse_clean(
        "model gpt\n"
        'import a, b from "std/blocks"\n'
        "dims { b: batch; s: seq = 4; slot: ragged; d }\n"
        "default linear(bias=true, init=normal(0.02))\n"
        'weights hf from "std/hf/gpt2"\n'
        "profile tiny { dims.d = 3; train.lr.peak = 1e-3; parallel.pp = 1 }\n"
    )
    model, imports, dims, default, weights, profile = file.items
    assert isinstance(model, ast.Model) and model.name.text == "gpt"
    assert isinstance(imports, ast.Import)
    assert [name.text for name in imports.names] == ["a", "b"]
    assert imports.path.value == "std/blocks"
    assert isinstance(dims, ast.Dims)
    assert [(d.name.text, d.kind and d.kind.text) for d in dims.decls] == [
        ("b", "batch"),
        ("s", "seq"),
        ("slot", "ragged"),
        ("d", None),
    ]
    assert [d.size is None for d in dims.decls] == [True, False, True, True]
    assert dims.decls[1].span.text == "s: seq = 4"
    assert isinstance(default, ast.Default) and default.primitive.text == "linear"
    assert [arg.name and arg.name.text for arg in default.args] == ["bias", "init"]
    assert isinstance(weights, ast.Weights)
    assert weights.entries is None and weights.path is not None
    assert weights.path.value == "std/hf/gpt2"
    assert isinstance(profile, ast.Profile)
    assert [x.path.text for x in profile.settings] == ["dims.d", "train.lr.peak", "parallel.pp"]


def test_block_heads() -> None:
    file = parse_clean(
        "block f<s, t>(x[b, s, d@tp], keep[.., t]: bool = none, causal = false)\n"
        "    -> [b], [s]: v { }\n"
        'extern ema(x[.., s], decay = 0.9) -> [.., s] from "ops:ema" along d, e\n'
        "forward() -> [] { }\n"
    )
    block, extern, forward = file.items
    assert isinstance(block, ast.Block)
    assert [name.text for name in block.generics] == ["s", "t"]
    x, keep, causal = block.params
    assert x.axes is not None and x.dtype is None and x.default is None
    last = x.axes.axes[-1]
    assert isinstance(last, ast.AxisRef) and last.mesh is not None and last.mesh.text == "tp"
    assert keep.axes is not None and isinstance(keep.axes.axes[0], ast.RestAxes)
    assert keep.dtype is not None and keep.dtype.text == "bool"
    assert isinstance(keep.default, ast.NoneLiteral)
    assert causal.axes is None and isinstance(causal.default, ast.Bool)
    assert [r.dtype and r.dtype.text for r in block.results] == [None, "v"]
    assert block.body.statements == () and block.body.span.text == "{ }"
    assert isinstance(extern, ast.Extern) and extern.target.value == "ops:ema"
    assert [name.text for name in extern.along] == ["d", "e"]
    assert isinstance(forward, ast.Forward) and forward.params == ()
    assert forward.results[0].axes.axes == ()


def test_statements() -> None:
    assign = _statement("q, k[b], v = linear(x) as qkv -> [b, s], [b, t], [b]")
    assert isinstance(assign, ast.Assign)
    assert [t.name.text for t in assign.targets] == ["q", "k", "v"]
    assert [t.axes is None for t in assign.targets] == [True, False, True]
    call = assign.value
    assert isinstance(call, ast.Call) and call.layer is not None and call.layer.text == "qkv"
    assert call.result is not None and call.result.span.text == "[b, s]"
    assert [axes.span.text for axes in assign.more_types] == ["[b, t]", "[b]"]

    loss = _statement("loss lm = 0.5 * f(x)")
    assert isinstance(loss, ast.Loss) and loss.name.text == "lm"
    result = _statement("return x, y")
    assert isinstance(result, ast.Return) and len(result.values) == 2

    repeat = _statement("repeat i in layers / 2 shared { x = f(x) }")
    assert isinstance(repeat, ast.Repeat) and repeat.shared
    assert repeat.index is not None and repeat.index.text == "i"
    plain = _statement("repeat layers { }")
    assert isinstance(plain, ast.Repeat) and plain.index is None and not plain.shared

    stage, every = _statements("stage\nstage every 8")
    assert isinstance(stage, ast.Stage) and stage.every is None
    assert isinstance(every, ast.Stage) and isinstance(every.every, ast.Number)


def test_else_if_is_a_body_with_one_if() -> None:
    choice = _statement("if a { x = y } else if b { } else { z = y }")
    assert isinstance(choice, ast.If) and choice.otherwise is not None
    (inner,) = choice.otherwise.statements
    assert isinstance(inner, ast.If) and inner.otherwise is not None
    assert inner.span == choice.otherwise.span
    assert len(inner.otherwise.statements) == 1


def _shape(node: ast.Expr) -> str:
    """Fully bracketed, to see what binds how."""
    if isinstance(node, ast.Binary):
        return f"({_shape(node.left)} {node.op} {_shape(node.right)})"
    if isinstance(node, ast.Unary):
        return f"({node.op} {_shape(node.operand)})"
    if isinstance(node, ast.Ternary):
        parts = map(_shape, (node.then, node.condition, node.otherwise))
        return "({} if {} else {})".format(*parts)
    return node.span.text


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("a + b * c", "(a + (b * c))"),
        ("a - b - c", "((a - b) - c)"),
        ("a / b // c % d", "(((a / b) // c) % d)"),
        ("-a ** 2", "(- (a ** 2))"),
        ("a ** -b ** c", "(a ** (- (b ** c)))"),
        ("not a == b and c or d", "(((not (a == b)) and c) or d)"),
        ("a < b", "(a < b)"),
        ("a >= b + 1", "(a >= (b + 1))"),
        ("(a + b) * c", "((a + b) * c)"),
        ("a if b else c if d else e", "(a if b else (c if d else e))"),
        ("- - a", "(- (- a))"),
    ],
)
def test_precedence(text: str, shape: str) -> None:
    assert _shape(expression(text)) == shape


def test_a_group_belongs_to_the_span_around_it() -> None:
    product = expression("(a + b) * c")
    assert isinstance(product, ast.Binary)
    assert product.span.text == "(a + b) * c"
    assert product.left.span.text == "a + b"


def test_atoms() -> None:
    values = expression('[1, 2.5, "a", true, false, none, 1f1b, x.y, [],]')
    assert isinstance(values, ast.ListExpr)
    kinds = [type(item).__name__ for item in values.items]
    assert kinds == [
        *("Number", "Number", "String", "Bool", "Bool", "NoneLiteral", "Word", "Path", "ListExpr"),
    ]


def test_calls_and_indices() -> None:
    call = expression("f(x, a=1, every=2,)")
    assert isinstance(call, ast.Call)
    assert [arg.name and arg.name.text for arg in call.args] == [None, "a", "every"]
    assert call.layer is None and call.result is None
    index = expression("f(x)[s=0, t=1:, u=:4, v=a:b, w=:, s as s'][h=2]")
    assert isinstance(index, ast.Index) and isinstance(index.value, ast.Index)
    pick, *slices, rename = index.value.items
    assert isinstance(pick, ast.Pick) and pick.axis.text == "s"
    ends = [(s.start is None, s.stop is None) for s in slices if isinstance(s, ast.Slice)]
    assert ends == [(False, True), (True, False), (False, False), (True, True)]
    assert isinstance(rename, ast.Rename) and rename.to.text == "s'"


def test_keywords_serve_as_names_of_functions_settings_and_layers_in_files() -> None:
    file = parse_clean(
        "train { save = every(1000, keep=5); eval.every = 3 }\n"
        'weights hf { shared = "a"; block.* = "b" }\n'
    )
    train, weights = file.items
    assert isinstance(train, ast.Train)
    value = train.settings[0].value
    assert isinstance(value, ast.Call) and value.function.text == "every"
    assert isinstance(weights, ast.Weights) and weights.entries is not None
    assert [entry.path[0].names for entry in weights.entries] == [("shared",), ("block",)]


def test_plans() -> None:
    (item,) = parse_clean(
        "parallel { pp = 4; schedule = 1f1b; shard heads, ff on tp else s; shard e on ep }"
    ).items
    assert isinstance(item, ast.Parallel)
    shards = [entry for entry in item.entries if isinstance(entry, ast.Shard)]
    assert [[axis.text for axis in shard.axes] for shard in shards] == [["heads", "ff"], ["e"]]
    assert [shard.otherwise and shard.otherwise.text for shard in shards] == ["s", None]
    assert [shard.mesh.text for shard in shards] == ["tp", "ep"]


def test_the_map_of_a_checkpoint() -> None:
    (item,) = parse_clean(
        "weights hf {\n"
        '  decoder.* = "h.*" {\n'
        '    attention.(q, k, v) = "c_attn".T [d, (_ heads hd)]\n'
        '    norm = "ln"\n'
        "  }\n"
        '  *.tail = "t"\n'
        "}"
    ).items
    assert isinstance(item, ast.Weights) and item.entries is not None and item.path is None
    decoder, tail = item.entries
    assert [segment.names for segment in decoder.path] == [("decoder",), ("*",)]
    assert decoder.path[1].is_star and decoder.path_span.text == "decoder.*"
    assert not decoder.transposed and decoder.layout is None
    assert decoder.children is not None
    fused, norm = decoder.children
    assert fused.path[1].names == ("q", "k", "v") and fused.transposed
    assert fused.layout is not None
    assert [[n.text for n in group.names] for group in fused.layout] == [
        ["d"],
        ["_", "heads", "hd"],
    ]
    assert norm.children is None
    assert tail.path[0].is_star


@pytest.mark.parametrize(
    "text",
    [
        "x = a\n  + b",
        "x = a +\n  b",
        "x = a\n  # a comment between\n\n  + b",
        "x = f(a,\n      b)",
        "x =\n  f(a, b)",
        "x = f(a) ->\n  [b]",
        "x = f(a)\n  -> [b]",
        "x = f(a)\n  as y",
        "x = a\n  and b",
        "x = a\n  ** b",
        "q,\n k = f(a) -> [b],\n [c]",
        "return not\n x",
    ],
)
def test_lines_that_go_on(text: str) -> None:
    assert len(_statements(text)) == 1


def test_newlines_semicolons_and_comments_separate() -> None:
    assert len(_statements("x = a; y = b;; z = c;\n\n# c\n w = d # e\n;")) == 4
    assert len(_statements("x = a\ny = -b")) == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "  \t ",
        "# only a comment",
        "# a\n\n# b\n",
        "\ufeff",
        "\ufeff# c",
        "\r\n",
        ";",
        "\f",
    ],
)
def test_files_with_nothing_in_them(text: str) -> None:
    assert parse_clean(text).items == ()


def test_line_ends_tabs_byte_order_mark_and_no_final_newline() -> None:
    plain = "model a\n\ndims {\n\td = 3\t# c\n}\nforward(x[b],\n\ty[b]) -> [b] {\n\treturn x\n}"
    want = parse_clean(plain)
    for variant in (plain + "\n", plain.replace("\n", "\r\n"), "\ufeff" + plain):
        assert ast_equal(parse_clean(variant).items, want.items)
    assert parse_clean("\ufeff" + plain).items[0].span.column == 2


def test_settings_of_the_command_line() -> None:
    sink = Sink()
    setting = parse_setting(SourceFile("argument", "train.lr.peak=1e-3"), sink)
    assert setting is not None and setting.path.text == "train.lr.peak"
    assert isinstance(setting.value, ast.Number) and setting.value.value == 1e-3
    assert not sink.diagnostics
    call = parse_expression(SourceFile("argument", " pad(61, 8)\n"), sink)
    assert isinstance(call, ast.Call) and call.span.text == "pad(61, 8)"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "G018"),
        ("a b", "G004"),
        ("pad(61, 8", "G008"),
        ("1; 2", "G000"),
        ("1 +", "G018"),
        ("'x'", "G011"),
        ("1 2\n", "G004"),
        ("every", "G006"),
    ],
)
def test_what_is_no_expression_is_one_diagnostic_and_none(text: str, code: str) -> None:
    sink = Sink()
    assert parse_expression(SourceFile("argument", text), sink) is None
    assert [found.code for found in sink.diagnostics] == [code]


@pytest.mark.parametrize(
    "text", ["", "=", "train.steps", "train.steps 20", "3=4", "train.=3", "--a=3", "a[b]=3"]
)
def test_what_is_no_setting_is_one_diagnostic_and_none(text: str) -> None:
    sink = Sink()
    assert parse_setting(SourceFile("argument", text), sink) is None
    assert len(sink.diagnostics) == 1


def test_equal_trees() -> None:
    one, two = parse_clean("dims { d = 3 }"), parse_clean("dims {\n  d   = 3\n}")
    assert ast_equal(one.items, two.items)
    assert not ast_equal(one.items, parse_clean("dims { d = 3.0 }").items)
    assert not ast_equal(one.items, parse_clean("dims { d = 3; e }").items)
    assert not ast_equal(expression("a - b"), expression("a + b"))
