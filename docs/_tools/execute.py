"""Run every code block of the documentation, and keep what the blocks print.

    python docs/_tools/execute.py              all pages; pages that did not change are skipped
    python docs/_tools/execute.py start/own-images README

A page is run from top to bottom in an empty folder: `sh` blocks by bash, `python` blocks in one namespace. Comments
before a block change that:

    <!-- with: photos -->            put samples into the folder first (see `SAMPLES`)
    <!-- add: --epochs 1 -->         append options to each line that trains, so that the page builds in minutes
    <!-- replace: epochs=20 → epochs=1 -->
    <!-- not run: needs 8 GPUs -->   show the block, do not run it

and `<!-- output -->` after a block shows what it printed; `<!-- output: 5 -->` shows the last five lines.
"""

import concurrent.futures
import contextlib
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
BUILD = ROOT / "build" / "docs"
TRAINS = re.compile(r"hypersphere (pretrain|sweep)\b(?!.*--help)")
_NOTES = r"(?P<notes>(?:<!--\s*(?:with|add|replace|not run):(?:(?!-->).)*-->\s*\n)*)"
BLOCK = re.compile(_NOTES + r"```(?P<language>sh|python)\n(?P<source>.*?)```", re.DOTALL)
_NOTE = re.compile(r"<!--\s*(with|add|replace|not run):\s*(.*?)\s*-->", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A code block of a page."""

    language: str
    source: str
    notes: tuple[tuple[str, str], ...]

    @property
    def is_run(self) -> bool:
        return all(kind != "not run" for kind, _ in self.notes)

    @property
    def samples(self) -> list[str]:
        return [name for kind, names in self.notes if kind == "with" for name in names.split()]

    @property
    def code(self) -> str:
        """The source as it is run: shortened as the notes say.

        Raises:
            ValueError: If a note changes nothing.
        """
        code = self.source
        for kind, text in self.notes:
            before = code
            if kind == "add":
                lines = code.split("\n")
                code = "\n".join(_extended(line, text) if TRAINS.search(line) else line for line in lines)
            if kind == "replace":
                old, new = text.split(" → ")
                code = code.replace(old, new)
            if kind in ("add", "replace") and code == before:
                raise ValueError(f"the note '{kind}: {text}' changes nothing in:\n{code}")
        return code


def _extended(line: str, options: str) -> str:
    command, comment, text = line.partition("  #")
    return f"{command.rstrip()} {options}{comment}{text}"


def blocks_of(text: str) -> Iterator[Block]:
    for found in BLOCK.finditer(text):
        yield Block(found["language"], found["source"], tuple(_NOTE.findall(found["notes"])))


def photos(folder: Path) -> None:
    """photos/{temples,flowers}/*.jpg: 48 crops of two photographs that scikit-learn has."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    for name, pixels in zip(("temples", "flowers"), load_sample_images().images, strict=True):
        (folder / "photos" / name).mkdir(parents=True)
        whole = Image.fromarray(pixels)
        for index in range(24):
            left, top = 80 * (index % 6), 90 * (index // 6)
            whole.crop((left, top, left + 120, top + 120)).save(folder / "photos" / name / f"{index:02}.jpg")


def run_of_digits(folder: Path) -> None:
    """runs/digits: a short run."""
    import hypersphere as hs

    hs.pretrain("byol-mhe", data="digits", epochs=4, out=folder / "runs" / "digits", progress=False)


SAMPLES: dict[str, Callable[[Path], None]] = {"photos": photos, "run": run_of_digits}


def saved_block(page: str, file: str, number: int = 0) -> Callable[[Path], None]:
    """The `number`-th Python block of a page as a file: the module that the page asks the reader to write."""

    def save(folder: Path) -> None:
        written = [block.source for block in blocks_of((DOCS / f"{page}.md").read_text()) if block.language == "python"]
        (folder / file).write_text(written[number])

    return save


SAMPLES |= {
    "my_nets.py": saved_block("how-to/own-encoder", "my_nets.py"),
    "my_methods.py": saved_block("how-to/own-method", "my_methods.py"),
    "my_weights.py": saved_block("how-to/own-regularizer", "my_weights.py"),
    "train.py": saved_block("how-to/own-loop", "train.py", 3),
}


def run_page(text: str, folder: Path) -> list[str]:
    """What each block of a page prints.

    Raises:
        RuntimeError: If a block fails; with its source and what it printed.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    for block in blocks_of(text):
        for name in block.samples:
            SAMPLES[name](folder)
        run = {"sh": _run_shell, "python": _run_python}[block.language]
        found = run(block.code, folder, namespace) if block.is_run else ""
        printed.append(found.replace(f"{folder}/", ""))
    return printed


def _run_shell(code: str, folder: Path, namespace: dict[str, Any]) -> str:
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "COLUMNS": "100",
        "OMP_NUM_THREADS": "1",
    }
    how: Any = {"cwd": folder, "env": environment, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", code], **how)
    if done.returncode:
        raise RuntimeError(f"{code}\nexited with status {done.returncode}:\n{done.stdout}")
    return done.stdout


def _run_python(code: str, folder: Path, namespace: dict[str, Any]) -> str:
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            exec(compile(code, "<page>", "exec"), namespace)
        except Exception:
            raise RuntimeError(f"{code}\nfailed:\n{printed.getvalue()}{traceback.format_exc()}") from None
    return printed.getvalue()


def pages() -> dict[str, Path]:
    """Every page by its name, such as `start/install`, and the README."""
    found = {str(path.relative_to(DOCS).with_suffix("")): path for path in sorted(DOCS.rglob("*.md"))}
    return {"README": ROOT / "README.md"} | {name: path for name, path in found.items() if "_" not in name[:1]}


def outputs_of(name: str) -> list[str]:
    """What the blocks of a page printed when they were last run."""
    path = BUILD / "outputs" / f"{name}.json"
    return json.loads(path.read_text())["printed"] if path.exists() else []


def _execute(name: str, path: Path) -> str:
    import torch

    torch.set_num_threads(1)
    text, kept = path.read_text(), BUILD / "outputs" / f"{name}.json"
    key = hashlib.sha256((code_version() + text).encode()).hexdigest()
    if kept.exists() and json.loads(kept.read_text())["key"] == key:
        return f"{name}: unchanged"
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        printed = run_page(text, Path(folder))
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"key": key, "printed": printed}, indent=1))
    return f"{name}: {len(printed)} blocks, {time.monotonic() - began:.0f} s"


def code_version() -> str:
    """A hash of the package and of this file."""
    files = [Path(__file__), *sorted((ROOT / "src").rglob("*.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def main(names: list[str]) -> int:
    chosen = {name: path for name, path in pages().items() if not names or name in names}
    failed = 0
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        running = {pool.submit(_execute, name, path): name for name, path in chosen.items()}
        for done in concurrent.futures.as_completed(running):
            try:
                print(done.result(), flush=True)
            except (RuntimeError, ValueError) as error:
                failed += 1
                print(f"{running[done]}: FAILED\n{error}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
