"""Data flows one way: which part may import which."""

import ast
import subprocess
import sys
from pathlib import Path

import hypersphere

ROOT = Path(hypersphere.__file__).parent
LEAVES = {"collectives", "cores", "draws", "errors", "files", "joining", "launch", "probes", "progress", "written"}
ARROWS = {
    "joining": set(),
    "launch": set(),
    "cores": set(),
    "collectives": set(),
    "errors": set(),
    "draws": set(),
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
    "methods": {"sphere", "nn", "optim"},
    "presets": set(),
    "config": {"presets"},
    "train": {"methods", "optim", "nn", "regularize", "sphere", "views"},
    "evaluate": {"data", "views", "sphere", "optim", "nn"},
    "machine": {"config", "kernels"},
    "initial": {"config", "nn"},
    "diagnostics": {"evaluate", "kernels", "nn", "regularize", "sphere"},
    "build": {
        "diagnostics",
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
    "feed": {"data", "methods", "train", "views"},
    "sets": {"config", "data", "presets", "views"},
    "probing": {"data", "evaluate", "feed", "views"},
    "run": {
        "build",
        "config",
        "data",
        "evaluate",
        "machine",
        "methods",
        "nn",
        "presets",
        "probing",
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
        "initial",
        "machine",
        "methods",
        "nn",
        "presets",
        "run",
        "sets",
        "train",
        "views",
    },
    "subject": {"build", "config", "data", "evaluate", "loading", "machine", "nn", "run", "sets", "views"},
    "diagnosis": {"diagnostics", "evaluate", "regularize", "run", "sphere", "subject"},
    "loading": {"build", "config", "data", "evaluate", "machine", "nn", "run", "sets", "views"},
    "vectors": set(),
    "embed": {"data", "loading", "vectors"},
    "neighbours": {"loading", "sphere", "vectors"},
    "gallery": {"data", "neighbours", "report", "vectors"},
    "card": {"build", "config", "data", "loading", "machine", "nn", "run"},
    "exporting": {"card", "loading", "nn", "run"},
    "demo": {"build", "config", "evaluate", "machine", "pretraining", "run"},
    "options": set(),
    "bench": {
        "build",
        "config",
        "data",
        "evaluate",
        "feed",
        "kernels",
        "machine",
        "methods",
        "nn",
        "optim",
        "sets",
        "sphere",
        "train",
        "views",
    },
    "results": {"config"},
    "paper": {"build", "config", "methods", "results"},
    "report": {
        "bench",
        "build",
        "config",
        "data",
        "diagnostics",
        "diagnosis",
        "machine",
        "paper",
        "results",
        "run",
        "sets",
        "sphere",
        "train",
    },
    "fanout": set(),
    "jobs": {"config", "diagnostics", "fanout", "machine", "pretraining", "results", "run"},
    "reproduce": {"jobs", "paper", "report", "results"},
    "grid": {"build", "config", "fanout", "jobs", "methods", "paper", "results", "sets"},
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
        "jobs",
        "methods",
        "neighbours",
        "options",
        "paper",
        "presets",
        "pretraining",
        "report",
        "reproduce",
        "results",
        "run",
        "sets",
        "grid",
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
    seen = set()
    for path in ROOT.rglob("*.py"):
        part = part_of(path)
        if part in ("__init__", "__main__"):
            continue
        seen.add(part)
        for other in imports(path):
            if other in (part, "__version__"):
                continue
            assert other in ARROWS[part] | LEAVES, f"{path.relative_to(ROOT)} imports {other}"
    assert seen == set(ARROWS)


def test_importing_needs_torch_and_numpy_alone():
    others = ["torchvision", "sklearn", "scipy", "tyro", "rich", "tensorboard", "PIL"]
    block = f"import sys\nfor name in {others}:\n    sys.modules[name] = None\n"
    use = "import hypersphere as hs, torch\nhs.hyperspherical_energy(torch.randn(4, 3))\nhs.Run\n"
    found = subprocess.run([sys.executable, "-c", block + use], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
