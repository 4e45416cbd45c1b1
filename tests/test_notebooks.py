"""The notebooks of the documentation are stored without outputs, and use public names only."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import hypersphere as hs

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
notebooks = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells_of(path: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def code_of(path: Path) -> Iterator[ast.Module]:
    for number, cell in enumerate(cells_of(path, "code")):
        yield ast.parse("".join(cell["source"]), f"{path.name}, code cell {number}")


def used_names(tree: ast.AST) -> Iterator[tuple[str, ...]]:
    """What code takes from the package, such as ("evaluate", "knn") for `hs.evaluate.knn(…)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")[1:]) for alias in node.names if is_ours(alias.name))
        elif isinstance(node, ast.ImportFrom) and is_ours(node.module or ""):
            yield from ((*(node.module or "").split(".")[1:], alias.name) for alias in node.names)
        elif isinstance(node, ast.Attribute) and (names := attributes_of(node)):
            yield names


def is_ours(module: str) -> bool:
    return module.partition(".")[0] == "hypersphere"


def attributes_of(node: ast.expr) -> tuple[str, ...]:
    """The attributes in an expression such as `hs.evaluate.knn`; none if it does not begin with `hs`."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return tuple(names) if isinstance(node, ast.Name) and node.id == "hs" else ()


def is_public(names: tuple[str, ...]) -> bool:
    """Whether the names are public, as far as packages go: attributes of functions and classes are not checked."""
    owner: Any = hs
    for name in names:
        if not isinstance(owner, ModuleType):
            return True
        if name not in (dir(hs) if owner is hs else owner.__all__):
            return False
        owner = getattr(owner, name)
    return True


def test_public_names_are_told_from_others():
    tree = ast.parse("import hypersphere as hs\nhs.evaluate.knn(hs.load_run('x').path)\nhs.sphere.pairwise\nhs.cli")
    assert [names for names in used_names(tree) if not is_public(names)] == [("sphere", "pairwise"), ("cli",)]
    other = ast.parse("from hypersphere.runs.run import random_encoder\nfrom hypersphere import uniformity")
    assert [is_public(names) for names in used_names(other)] == [False, True]


@notebooks
def test_notebooks_are_stored_without_outputs(path):
    for cell in cells_of(path, "code"):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
        assert cell["metadata"].keys() <= {"tags"}
    assert json.loads(path.read_text())["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }


@notebooks
def test_notebooks_begin_with_a_title_and_a_sentence(path):
    title, empty, sentence = "".join(cells_of(path, "markdown")[0]["source"]).splitlines()[:3]
    assert title.startswith("# ")
    assert empty == ""
    assert sentence.startswith("You ")


@notebooks
def test_notebooks_compile_and_use_public_names(path):
    trees = list(code_of(path))
    for tree in trees:
        compile(tree, path.name, "exec")
    names = {names for tree in trees for names in used_names(tree)}
    assert len(names) > 3
    assert [".".join(used) for used in sorted(names) if not is_public(used)] == []
