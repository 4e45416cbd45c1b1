"""Data flows one way: which package may import which."""

import ast
from pathlib import Path

import pytest

import hypersphere

ROOT = Path(hypersphere.__file__).parent
LEAVES = {"errors", "util"}  # that all may import
ARROWS = {  # each package, or module at the top, and those before it that it imports
    "util": set(),
    "distributed": set(),
    "kernels": set(),
    "sphere": {"kernels"},
    "losses": {"distributed", "sphere"},
    "regularize": {"sphere"},
    "nn": {"distributed", "kernels"},
    "views": {"kernels"},
    "optim": {"kernels"},
    "data": {"distributed", "views"},
    "methods": {"data", "distributed", "losses", "nn", "optim", "sphere"},
    "train": {"data", "distributed", "methods", "nn", "optim"},
    "presets": set(),
    "probes": set(),
    "config": {"data", "losses", "methods", "nn", "optim", "presets", "regularize", "train", "views"},
    "evaluate": {"data", "optim", "probes", "sphere", "views"},
    "diagnostics": {"evaluate", "kernels", "nn", "regularize", "sphere"},
    "runs": {
        "config",
        "data",
        "diagnostics",
        "distributed",
        "evaluate",
        "kernels",
        "losses",
        "methods",
        "nn",
        "optim",
        "presets",
        "probes",
        "regularize",
        "sphere",
        "train",
        "views",
    },
    "inference": {
        "config",
        "data",
        "diagnostics",
        "evaluate",
        "nn",
        "regularize",
        "runs",
        "sphere",
        "views",
    },
    "integrations": {"inference", "nn", "regularize", "sphere"},
    "sklearn": {"data", "inference", "runs", "sphere"},
    "sweeps": {"config", "data", "diagnostics", "methods", "probes", "runs"},
    "bench": {
        "config",
        "data",
        "distributed",
        "evaluate",
        "kernels",
        "methods",
        "nn",
        "optim",
        "runs",
        "sphere",
        "train",
        "views",
    },
    "paper": {"config", "methods", "probes", "runs", "sweeps"},
    "report": {"bench", "config", "data", "diagnostics", "inference", "paper", "probes", "runs", "sphere", "train"},
    "cli": {
        "bench",
        "config",
        "data",
        "inference",
        "methods",
        "paper",
        "probes",
        "report",
        "runs",
        "sweeps",
    },
}


def package_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [
                f"{node.module}.{alias.name}" if node.module == "hypersphere" else node.module for alias in node.names
            ]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("hypersphere."):
                yield name.split(".")[1]


def test_no_arrow_turns_back():
    seen: dict[str, set[str]] = {}
    for path in ROOT.rglob("*.py"):
        package = package_of(path)
        if package in ("__init__", "__main__", "errors"):
            continue
        others = {*imports(path)} - LEAVES - {package, "__version__"}
        new = ", ".join(others - ARROWS[package])
        told = f"move the code, or add it to ARROWS[{package!r}] if ARROWS has it before {package}"
        assert not new, f"{path.relative_to(ROOT)} imports {new}: {told}"
        seen.setdefault(package, set()).update(others)
    for package in ARROWS:
        assert seen[package] == ARROWS[package], f"{package} no longer imports all that ARROWS lists"
    assert seen.keys() == ARROWS.keys()
    before: set[str] = set()
    for package, others in ARROWS.items():
        assert others <= before, f"{package} imports what comes after it"
        before.add(package)


def test_few_modules_lie_at_the_top():
    assert len([*ROOT.glob("*.py")]) <= 8


@pytest.mark.parametrize("package", sorted(path.parent.name for path in ROOT.glob("*/__init__.py")))
def test_every_package_says_what_it_is_and_may_import(package):
    about = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text())) or ""
    allowed = f"May import: {', '.join(sorted((ARROWS[package] | LEAVES) - {package}))}."
    what, _, listed = about.rpartition("\n\n")
    assert " ".join(listed.split()) == allowed, f"the docstring of {package} must end with: {allowed}"
    assert what, f"the docstring of {package} must say what it is"


def test_tests_mirror_the_packages():
    tests = Path(__file__).parent
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert {path.parent.name for path in tests.glob("*/__init__.py")} == packages | {"fuzz"}
