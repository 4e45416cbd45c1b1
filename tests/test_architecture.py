"""Data flows one way: which part may import which."""

import ast
import subprocess
import sys
from pathlib import Path

import hypersphere

ROOT = Path(hypersphere.__file__).parent
LEAVES = {"collectives", "cores", "draws", "errors", "files", "intervals", "joining", "launch", "probes", "progress"}
LEAVES |= {"written"}
ARROWS = {  # each part, and those before it that it may import
    "joining": set(),
    "launch": set(),
    "cores": set(),
    "collectives": set(),
    "errors": set(),
    "draws": set(),
    "intervals": set(),
    "files": set(),
    "probes": set(),
    "progress": set(),
    "written": set(),
    "kernels": set(),
    "sphere": {"kernels"},
    "regularize": {"sphere"},
    "nn": {"kernels"},
    "views": {"kernels"},
    "data": set(),
    "optim": {"kernels"},
    "methods": {"nn", "optim", "sphere"},
    "presets": set(),
    "config": {"presets"},
    "train": {"methods", "nn", "optim"},
    "evaluate": {"data", "optim", "sphere", "views"},
    "machine": {"config", "kernels"},
    "initial": {"config", "nn"},
    "diagnostics": {"evaluate", "kernels", "nn", "regularize", "sphere"},
    "feed": {"data", "methods", "train", "views"},
    "probing": {"data", "evaluate", "feed", "views"},
    "vectors": set(),
    "options": set(),
    "results": {"config"},
    "fanout": set(),
    "lists": {"config", "data", "presets"},
    "sets": {"config", "data", "lists", "presets", "views"},
    "build": {
        "config",
        "data",
        "evaluate",
        "initial",
        "kernels",
        "machine",
        "methods",
        "nn",
        "optim",
        "presets",
        "regularize",
        "sets",
        "sphere",
        "train",
        "views",
    },
    "run": {
        "build",
        "config",
        "data",
        "evaluate",
        "lists",
        "machine",
        "methods",
        "nn",
        "presets",
        "probing",
        "sets",
        "train",
        "views",
    },
    "loading": {"build", "config", "data", "evaluate", "machine", "nn", "run", "sets", "views"},
    "recipes": {"config", "data", "lists", "presets"},
    "subject": {
        "build",
        "config",
        "data",
        "evaluate",
        "lists",
        "loading",
        "machine",
        "nn",
        "presets",
        "recipes",
        "regularize",
        "run",
        "sets",
        "views",
    },
    "diagnosis": {"diagnostics", "evaluate", "regularize", "run", "sphere", "subject"},
    "embed": {"data", "loading", "vectors"},
    "neighbours": {"data", "loading", "sphere", "vectors"},
    "card": {"build", "config", "data", "loading", "machine", "nn", "run"},
    "exporting": {"card", "loading", "nn", "run"},
    "paper": {"build", "config", "methods", "results"},
    "idle": {"config", "methods", "presets", "sets"},
    "monitors": {
        "build",
        "config",
        "data",
        "diagnostics",
        "evaluate",
        "machine",
        "methods",
        "regularize",
        "sets",
        "train",
        "views",
    },
    "pretraining": {
        "build",
        "config",
        "data",
        "diagnostics",
        "evaluate",
        "feed",
        "idle",
        "initial",
        "lists",
        "machine",
        "methods",
        "monitors",
        "nn",
        "presets",
        "recipes",
        "run",
        "sets",
        "train",
        "views",
    },
    "demo": {"config", "evaluate", "machine", "pretraining", "run"},
    "bench": {
        "build",
        "config",
        "data",
        "evaluate",
        "feed",
        "kernels",
        "lists",
        "machine",
        "methods",
        "monitors",
        "nn",
        "optim",
        "recipes",
        "sets",
        "sphere",
        "train",
        "views",
    },
    "report": {
        "bench",
        "build",
        "config",
        "data",
        "diagnosis",
        "diagnostics",
        "lists",
        "machine",
        "paper",
        "results",
        "run",
        "sets",
        "sphere",
        "train",
    },
    "gallery": {"data", "neighbours", "report", "vectors"},
    "jobs": {"config", "diagnostics", "fanout", "machine", "pretraining", "results", "run"},
    "reproduce": {"jobs", "machine", "paper", "report", "results"},
    "grid": {"config", "fanout", "idle", "jobs", "lists", "methods", "paper", "recipes", "results"},
    "commands": {
        "bench",
        "config",
        "data",
        "demo",
        "diagnosis",
        "embed",
        "exporting",
        "fanout",
        "gallery",
        "grid",
        "jobs",
        "methods",
        "neighbours",
        "options",
        "paper",
        "presets",
        "pretraining",
        "recipes",
        "report",
        "reproduce",
        "results",
        "run",
    },
    "cli": {"commands"},
}


def part_of(path: Path) -> str:
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
        part = part_of(path)
        if part in ("__init__", "__main__"):
            continue
        others = {*imports(path)} - LEAVES - {part, "__version__"}
        assert others <= ARROWS[part], f"{path.relative_to(ROOT)} imports {others - ARROWS[part]}"
        seen.setdefault(part, set()).update(others)
    assert seen == ARROWS  # of which none is idle
    before: set[str] = set()
    for part, others in ARROWS.items():
        assert others <= before, f"{part} imports what comes after it"
        before.add(part)


def test_importing_needs_torch_and_numpy_alone():
    others = ["torchvision", "sklearn", "scipy", "tyro", "rich", "tensorboard", "PIL"]
    block = f"import sys\nfor name in {others}:\n    sys.modules[name] = None\n"
    use = "import hypersphere as hs, torch\nhs.hyperspherical_energy(torch.randn(4, 3))\nhs.Run\n"
    found = subprocess.run([sys.executable, "-c", block + use], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
