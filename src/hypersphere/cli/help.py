"""The help of a command: the options that people use first, then a box for each group of the others."""

import ast
import dataclasses
import inspect
import itertools
import os
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, NoReturn, get_type_hints

import tyro

NARROWEST, WIDEST = 40, 120  # characters of a line; at a few tyro never ends


class Option(NamedTuple):
    hint: Any
    default: Any  # dataclasses.MISSING if the option is required
    help: str


def wants_help(words: Sequence[str]) -> bool:
    return "-h" in words or "--help" in words


def is_argument(hint: Any) -> bool:
    """Whether a field is a positional argument, not an option."""
    return tyro.conf.Positional in getattr(hint, "__metadata__", ())


def argument_name(name: str, hint: Any) -> str:
    """Name of a positional argument in messages: its metavar without brackets, such as RUN."""
    metavars = (getattr(part, "metavar", None) for part in hint.__metadata__)
    return next(filter(None, metavars), name.upper()).strip("[] …")


def describe_options(options: Any) -> dict[str, Option]:
    """Type, default and help text of each field of a dataclass or of an instance, by name."""
    kind = options if isinstance(options, type) else type(options)
    hints, helps = get_type_hints(kind, include_extras=True), help_texts(kind)
    defaults = {field.name: getattr(options, field.name, dataclasses.MISSING) for field in dataclasses.fields(options)}
    return {name: Option(hints[name], default, helps.get(name, "")) for name, default in defaults.items()}


def print_help(
    command: str,
    about: str,
    options: Mapping[str, Option],
    first: Sequence[str],
    groups: Mapping[str, Sequence[str]] | None = None,
) -> NoReturn:
    """Print the help of a command and exit.

    Args:
        command: Name of the command.
        about: What the command does. Empty lines separate paragraphs.
        options: All options by name.
        first: Names of the options that come before all groups.
        groups: Names of the options of each group. An empty group takes the options that are in no other.

    Raises:
        SystemExit: Always, with status 0.
    """
    groups = groups or {}
    named = {*first, *itertools.chain(*groups.values())}
    others = [name for name in options if name not in named]
    fields = [_field(name, options[name]) for name in first]
    for group, names in groups.items():
        members = [_field(name, options[name]) for name in names or others if name in options.keys() - first]
        if members:  # tyro shows a nested dataclass as a box
            box: Any = dataclasses.make_dataclass(group, members, frozen=True, namespace={"__doc__": ""})
            fields.append((f"{group}_group", Annotated[box, tyro.conf.arg(name=group)], box()))
    kind: Any = dataclasses.make_dataclass("options", fields, frozen=True)
    width = max(NARROWEST, min(shutil.get_terminal_size().columns, WIDEST))
    os.environ["COLUMNS"] = str(width)  # on a wider terminal tyro would set boxes side by side, out of order
    indent = 2 * " "  # without it tyro would join the lines
    paragraphs = [
        textwrap.fill(" ".join(paragraph.split()), width, initial_indent=indent, subsequent_indent=indent)
        for paragraph in about.split("\n\n")
    ]
    tyro.cli(
        kind,
        prog=f"hypersphere {command}",
        description="\n".join(paragraphs),
        args=["--help"],
        config=(tyro.conf.DisallowNone,),
    )
    raise SystemExit(0)


def _field(name: str, option: Option) -> Any:
    """A field of a dataclass whose option does not carry the name of its group."""
    shown = {dataclasses.MISSING: "(required)", (): "(default: none)"}.get(option.default)
    if option.default is None and is_argument(option.hint):
        shown = "(optional)"
    arg = tyro.conf.arg(help=option.help, help_behavior_hint=shown, prefix_name=False)
    field = name, Annotated[(option.hint, arg)]
    return field if option.default is dataclasses.MISSING else (*field, option.default)


def help_texts(kind: type) -> dict[str, str]:
    """The help of the fields of a dataclass and of its bases, each on one line, by field.

    It is the string literal below a field, or the `help` of its metadata.

    Example:
        >>> from hypersphere.cli.demo import DemoOptions
        >>> help_texts(DemoOptions)["seed"]
        'Seed of all three runs.'
    """
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        fields = vars(base).get("__dataclass_fields__", {})
        found |= {name: field.metadata["help"] for name, field in fields.items() if field.metadata.get("help")}
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]
        except (OSError, TypeError):  # a built-in class, or one that a function made
            continue
        for field, below in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                found[field.target.id] = " ".join(ast.literal_eval(below.value).split())  # type: ignore[union-attr]
    return found
