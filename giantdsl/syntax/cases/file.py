"""Between sections, and the sections without braces."""

from __future__ import annotations

from giantdsl.syntax import conditions as c
from giantdsl.syntax.cases.case import ANY, BLOCK_SHAPE, Case

_SECTIONS = (
    "the sections are `model`, `import`, `dims`, `default`, `block`, `extern`, `forward`, "
    "`weights`, `parallel`, `train` and `profile`"
)

FILE: tuple[Case, ...] = (
    Case(
        name="stray-brace",
        code="G009",
        message="`}}` closes nothing",
        label="no `{{` is open here",
        help="remove it, or add the `{{` that is missing above",
    ),
    Case(
        name="statement-outside",
        code="G019",
        message="a statement outside of any section",
        label="only sections stand here",
        help="statements belong inside `block` or `forward`, settings inside `train` or "
        "`parallel`; is there a `}}` too many above?",
        kinds=frozenset(["NAME", "RETURN", "LOSS", "REPEAT", "STAGE", "SHARD"]),
        when=c.starts_statement,
    ),
    Case(
        name="import-order",
        code="G030",
        message="an import starts with `import`",
        label="the path comes last",
        help='write `import attention, swiglu from "std/blocks"`',
    ),
    Case(
        name="block-by-other-word",
        code="G021",
        message="a block is defined with `block`",
        label="`block`?",
        help=f"write {BLOCK_SHAPE}",
        when=c.word_is("def", "class", "fn", "func", "function", "layer", "module", "struct"),
    ),
    Case(
        name="misspelt-section",
        code="G019",
        message="no section `{token}`",
        label="not a section",
        help="did you mean `{near}`?",
        when=c.is_misspelt_section,
        fix=c.respell_section,
    ),
    Case(
        name="unknown-section",
        code="G019",
        message="no section `{token}`",
        label="not a section",
        help=_SECTIONS,
    ),
    Case(
        name="no-section",
        code="G019",
        message="only sections stand outside of braces",
        label="a section is missing before this",
        help=_SECTIONS,
        kinds=ANY,
    ),
    Case(
        name="model-braces",
        code="G029",
        message="`model` has no braces",
        label="the line ends here",
        help="write `model {previous}` on a line of its own; the sections of a file belong to it",
    ),
    Case(
        name="model-name-parts",
        code="G029",
        message="a model's name is one word",
        label="the name has ended here",
        help="names are made of letters, digits and `_`: `model gpt_2`",
        kinds=frozenset(["MINUS", "DOT", "NUMBER", "NAME", "STRING", "SLASH", "COLON"]),
        when=c.not_(c.is_keyword),
    ),
    Case(
        name="section-goes-on",
        code="G005",
        message="this section goes on after its end",
        label="a new line is missing before this",
        help="each section starts on a line of its own",
        kinds=ANY,
        when=c.not_(c.is_in_braces),
    ),
    Case(
        name="model-name",
        code="G029",
        message="`model` needs a name",
        label="expected a name",
        help="write `model gpt2`; names are made of letters, digits and `_`",
        kinds=ANY,
        fix=c.unquote,
    ),
    Case(
        name="block-name",
        code="G029",
        message="`{previous}` needs a name",
        label="a name is missing before this",
        help=f"write {BLOCK_SHAPE}",
        kinds=ANY,
    ),
    Case(
        name="weights-name",
        code="G029",
        message="`weights` needs a name",
        label="a name is missing before this",
        help="write `weights hf {{ … }}`: the name says whose checkpoints these are",
        kinds=ANY,
    ),
    Case(
        name="profile-name",
        code="G029",
        message="`profile` needs a name",
        label="a name is missing before this",
        help="write `profile tiny {{ … }}`; `--profile tiny` then chooses it",
        kinds=ANY,
    ),
    Case(
        name="import-names",
        code="G030",
        message="`import` lists the blocks it wants",
        label="expected the name of a block",
        help='write `import attention, swiglu from "std/blocks"`',
        kinds=ANY,
        when=c.head_is("IMPORT"),
    ),
    Case(
        name="import-from",
        code="G030",
        message="`import` says where from",
        label="expected `from` and a path",
        help='write `import attention, swiglu from "std/blocks"`',
        kinds=ANY,
        when=c.head_is("IMPORT"),
    ),
    Case(
        name="import-path",
        code="G030",
        message="the path of an import is a string",
        label="expected a string in double quotes",
        help='write `import attention, swiglu from "std/blocks"`',
        kinds=ANY,
        when=c.head_is("IMPORT"),
    ),
    Case(
        name="default-name",
        code="G028",
        message="`default` names an operation",
        label="expected the name of an operation",
        help="write `default linear(bias=true)`",
        kinds=ANY,
    ),
    Case(
        name="default-arguments",
        code="G028",
        message="`default` gives arguments in ( )",
        label="a `(` is missing before this",
        help="write `default linear(bias=true)`",
        kinds=ANY,
    ),
    Case(
        name="default-positional",
        code="G028",
        message="the arguments of a `default` are given by name",
        label="expected `name=value`",
        help="write `default linear(bias=true)`",
        kinds=ANY,
    ),
)
