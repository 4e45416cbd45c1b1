"""The public names: what they are, that type checkers know them, and that their examples run."""

import ast
import doctest
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import hypersphere as hs

SOURCE = Path(hs.__file__)
ROOT = Path(__file__).parents[1]
GUIDES = (ROOT / "CONTRIBUTING.md", *(ROOT / "docs" / "how-to").glob("own-*.md"))
SKIPPED = "torch.*,torchvision.*,numpy.*,PIL.*,sklearn.*,scipy.*,timm.*,matplotlib.*,pyarrow.*,triton.*,rich.*,tyro.*"


def typed_names() -> dict[str, str]:
    """Each name that type checkers see, and the module that they find it in."""
    (block,) = (node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.If) and node.orelse == []
                and ast.unparse(node.test) == "TYPE_CHECKING")  # fmt: skip
    found = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.asname == alias.name  # re-exported
            found[alias.name] = (node.module + ".").removeprefix("hypersphere.").removesuffix(".") or alias.name
    return found


def test_type_checkers_see_the_same_names_as_users():
    assert typed_names() == hs._PUBLIC


def test_dir_lists_the_public_names_alone():
    assert set(dir(hs)) == {*hs._PUBLIC, "__version__"}
    for name, module in hs._PUBLIC.items():
        found = getattr(hs, name)
        assert found.__name__ == (f"hypersphere.{module}" if name == module else name)


def snippets(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def test_snippets_type_check(tmp_path):
    """Those of the README, and the files that guides show for this package: these begin with a docstring."""
    files = [code for page in GUIDES for code in snippets(page) if code.startswith('"""')]
    assert len(files) >= 3
    for number, snippet in enumerate(snippets(ROOT / "README.md") + files):
        (tmp_path / f"snippet_{number}.py").write_text(snippet)
    config = tmp_path / "mypy.ini"  # third-party packages, which take most of the time, are not looked into
    config.write_text(
        f"[mypy]\ncheck_untyped_defs = True\ndisallow_incomplete_defs = True\n[mypy-{SKIPPED}]\nfollow_imports = skip\n"
        "[mypy-hypersphere.*]\nfollow_imports = silent\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", tmp_path / "cache", tmp_path]
    environment = {"MYPYPATH": str(SOURCE.parents[1]), "PATH": ""}
    found = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert found.returncode == 0, found.stdout + found.stderr


PACKAGES = ("data", "sphere", "losses", "regularize", "nn", "views", "optim", "distributed", "train", "methods")
PACKAGES += ("sklearn",)
WITH_METHODS = (hs.data.Dataset, hs.data.Images, hs.data.Listing)  # their methods have complete docstrings, too


def documented() -> Iterator[tuple[str, Any]]:
    """Public functions and classes of the packages, by their full names."""
    for package in PACKAGES:
        module = import_module(f"hypersphere.{package}")
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isfunction(found) or inspect.isclass(found):
                yield f"{package}.{name}", found
            if found in WITH_METHODS:
                yield from ((f"{package}.{name}.{method}", getattr(found, method)) for method in public_methods(found))


def public_methods(owner: type) -> list[str]:
    """Names of the public methods and properties of a class, including inherited ones."""
    return [name for name in dir(owner) if name[0] != "_" and is_method(inspect.getattr_static(owner, name))]


def is_method(found: Any) -> bool:
    return inspect.isfunction(found) or isinstance(found, property | staticmethod)


@pytest.mark.parametrize(("name", "public"), [*documented()])
def test_docstrings_are_complete_and_their_examples_run(name, public):
    text = inspect.getdoc(public) or ""
    assert len(text.splitlines()[0]) < 120
    sections = re.findall(r"^(\w+):$", text, re.MULTILINE)
    assert "Example" in sections
    signature = inspect.signature(public.fget if isinstance(public, property) else public)
    parameters = [p for p in signature.parameters if p not in ("self", "args", "kwargs")]
    for parameter in parameters:
        assert re.search(rf"^    (\*\*)?{parameter}: ", text, re.MULTILINE), f"{parameter} is not explained"
    (test,) = doctest.DocTestFinder(recurse=False).find(public, name, globs={"hs": hs, "torch": torch})
    results = doctest.DocTestRunner(verbose=False).run(test)
    assert results.attempted > 0 or "+SKIP" in text
    assert results.failed == 0
