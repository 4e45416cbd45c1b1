"""Write the reference pages that come from the code: command line, options, and the API from its docstrings.

    python docs/_tools/reference.py

writes them into docs/reference again, and so does `make docs`.
"""

import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import hypersphere as hs
from hypersphere.cli.commands import COMMANDS
from hypersphere.cli.help import help_texts
from hypersphere.cli.pretrain import FIRST, GROUPS
from hypersphere.config import config_type, format_value, option_names, recipe
from hypersphere.methods import METHODS

API = {
    "training": ("Training, runs and trained encoders", "", [*hs.__all__[:12]]),
    "energies": ("Energies of layers", "", ["energies", "compare"]),
    "regularize": ("Regularizers of weights", "hypersphere.regularize", None),
    "sphere": ("Measures and losses of features", "hypersphere.sphere", None),
    "losses": ("Losses", "hypersphere.losses", None),
    "methods": ("Methods", "hypersphere.methods", None),
    "evaluate": ("Probes", "hypersphere.evaluate", None),
    "data": ("Data", "hypersphere.data", None),
    "views": ("Views", "hypersphere.views", None),
    "nn": ("Networks", "hypersphere.nn", None),
    "optim": ("Optimizers and schedules", "hypersphere.optim", None),
    "sklearn": ("scikit-learn", "hypersphere.sklearn", None),
    "integrations-monitor": (
        "Other training loops",
        "hypersphere.integrations.feature_monitor",
        ["FeatureMonitor", "add_gradient"],
    ),
    "distributed": ("Several processes", "hypersphere.distributed", None),
}
INHERITED = "   :inherited-members: Module, Optimizer, object"
MEMBERS = ["   :members:", INHERITED, "   :exclude-members: extra_repr, Options"]
MARK = "<!-- Written by docs/_tools/reference.py -->\n\n"


def write(docs: Path) -> None:
    """Write all generated pages into `docs/reference`, if their text changed."""
    for name, text in {"cli": cli_page(), **pages_of_names()}.items():
        path = docs / "reference" / f"{name}.md"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def pages_of_names() -> dict[str, str]:
    """The pages of options and public names."""
    pages = {"configuration": configuration_page()}
    pages |= {f"api-{name}": api_page(*api) for name, api in API.items()}
    return {name: MARK + text for name, text in pages.items()}


def cli_page() -> str:
    lines = [f"{MARK}# Command line\n", "The help of every command. `hypersphere COMMAND --help` prints the same.\n"]
    for name, command in COMMANDS.items():
        arguments = ["byol", "--help"] if name == "pretrain" else ["--help"]
        shown = subprocess.run(
            [sys.executable, "-m", "hypersphere", name, *arguments],
            capture_output=True, text=True, check=True, env={"COLUMNS": "88", "PATH": "", "NO_COLOR": "1"},
        ).stdout  # fmt: skip
        lines += [f"## {name}\n", f"{command.summary}.\n", "```text", shown.rstrip(), "```\n"]
    return "\n".join(lines)


def configuration_page() -> str:
    """Every option of a run in a table for each group, then the options of each method."""
    byol, helps = recipe("byol"), help_texts(config_type("byol"))
    shared = set.intersection(*(option_names(method) for method in METHODS)) - {"method"}
    grouped = {name for names in (FIRST, *GROUPS.values()) for name in names}
    groups = {"First": FIRST} | GROUPS | {"Other": tuple(sorted(shared - grouped))}
    lines = [
        "# Options of a run\n",
        "`hs.pretrain(METHOD, data=DATA, option=value)` and `hypersphere pretrain METHOD --data DATA --option value` "
        "take the same options. Defaults depend on the method and the dataset: these are for BYOL on CIFAR-10. "
        "`hypersphere pretrain METHOD --data DATA --help` prints those for yours.\n",
    ]
    for group, names in groups.items():
        rows = [_row(name, getattr(byol, name), helps) for name in names if name in shared]
        lines += _table(f"{group.capitalize()} options", rows)
    lines.append("## Options of methods\n")
    for method in METHODS:
        default, helps = recipe(method), help_texts(config_type(method))
        differing = [
            f"`{name}` `{format_value(getattr(default, name))}`"
            for name in default.differences(byol)
            if name != "method"
        ]
        own = [name for name in vars(default) if name in option_names(method) - shared - {"method"}]
        lines += [f"### {method}\n", f"Defaults that differ from BYOL's: {', '.join(differing) or 'none'}.\n"]
        lines += _table("", [_row(name, getattr(default, name), helps) for name in own])
    return "\n".join(lines)


def _row(name: str, default: Any, helps: dict[str, str]) -> str:
    text = helps.get(name, "").replace("|", "\\|")
    return f"| `{name}` | `{format_value(default)}` | {text} |"


def _table(title: str, rows: list[str]) -> list[str]:
    head = [f"## {title}\n"] if title else []
    return [*head, "| option | default | meaning |", "|---|---|---|", *rows, ""] if rows else []


def api_page(title: str, module: str, names: list[str] | None) -> str:
    """A table of all names, which every viewer shows, then directives that the site replaces by docstrings."""
    package = import_module(module) if module else hs
    about = (inspect.getdoc(package) or "").split("\n\n")[0] if module else ""
    lines = [f"# {title}\n", f"`{module}`: {about}\n" if about else "", _how_to_import(package, module)]
    rows, directives = [], []
    for name in names or package.__all__:
        found = getattr(package, name)
        kind = "class" if inspect.isclass(found) else "function" if inspect.isfunction(found) else ""
        if not kind:
            continue
        package_of = found.__module__.split(".")[1]
        elsewhere = module and package_of in API and not found.__module__.startswith(module)
        shown = f"[`{name}`](api-{package_of}.md)" if elsewhere else f"`{name}`"
        rows.append(f"| {shown} | {_summary(found)} |")
        if not elsewhere:
            directives.append(f".. auto{kind}:: {module or 'hypersphere'}.{name}")
            directives += MEMBERS if _has_members(found) else []
    table = ["| name | |", "|---|---|", *rows, ""]
    return "\n".join([*lines, *table, "```{eval-rst}", *directives, "```", ""])


def _summary(found: Any) -> str:
    first = (inspect.getdoc(found) or "").split("\n\n")[0]
    return " ".join(first.replace("|", "\\|").split())


def _how_to_import(package: Any, module: str) -> str:
    """A line on where the names are, after `import hypersphere as hs`."""
    if not module:
        return "All of these are names of `hypersphere`, as in `hs.pretrain`.\n"
    both = [f"`hs.{name}`" for name in package.__all__ if name in hs.__all__]
    also = f" These are also names of `hypersphere`: {', '.join(both)}." if both else ""
    path = module.replace("hypersphere", "hs")
    return f"Write `{path}.NAME`.{also} Labels such as eq:align are equations of the paper.\n"


def _has_members(found: Any) -> bool:
    with_members = (hs.Run, hs.Diagnosis, hs.data.Dataset, hs.data.Images, hs.methods.Method)
    return found in with_members or (inspect.isclass(found) and issubclass(found, hs.regularize.WeightRegularizer))


if __name__ == "__main__":
    write(Path(__file__).parents[1])
