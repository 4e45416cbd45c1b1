"""The pages of the documentation: code blocks run, notes mean something, links lead somewhere.

The README is run here; `make docs` runs all other pages.
"""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

import hypersphere as hs
from hypersphere.cli.commands import COMMANDS
from hypersphere.config import option_names

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_tools"))
import execute  # noqa: E402
import reference  # noqa: E402

PAGES = execute.pages()


def test_the_readme_runs(tmp_path):
    make, shell, run, regularizer = execute.run_page((ROOT / "README.md").read_text(), tmp_path)
    assert make == ""  # not run
    assert "runs/photos/evaluation.json" in shell
    assert "photos/flowers/" in shell
    assert "top1" in run
    assert "uniformity (G2)" in regularizer


@pytest.mark.parametrize("name", PAGES)
def test_blocks_can_be_run(name):
    """Notes change what they say they change, Python compiles, and commands exist."""
    for block in execute.blocks_of(PAGES[name].read_text()):
        assert all(sample in execute.SAMPLES for sample in block.samples)
        if block.language == "python":
            compile(block.code, name, "exec")
        for command in re.findall(r"^(?:\$ )?hypersphere (\w+)", block.code, re.MULTILINE):
            assert command in COMMANDS


@pytest.mark.parametrize("name", PAGES)
def test_links_between_pages(name):
    page = PAGES[name]
    for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_page_is_in_a_table_of_contents():
    listed = re.findall(r"^(?:.* <)?([\w/-]+)>?$", (ROOT / "docs" / "index.md").read_text(), re.MULTILINE)
    pages = {*PAGES} - {"README", "index"}
    pages |= {f"notebooks/{path.stem}" for path in (ROOT / "docs" / "notebooks").glob("*.ipynb")}
    assert [page for page in pages if page not in listed] == []


def test_reference_pages_are_those_of_the_code():
    """`python docs/_tools/reference.py` writes them. The help of commands depends on the version of tyro."""
    for name, text in reference.pages_of_names().items():
        assert (ROOT / f"docs/reference/{name}.md").read_text() == text, name
    shown = {name for _, module, names in reference.API.values() for name in names or import_module(module).__all__}
    assert {*hs.__all__} <= shown
    commands = (ROOT / "docs/reference/cli.md").read_text()
    assert [name for name in COMMANDS if f"\n## {name}\n" not in commands] == []
    (of_pretrain,) = re.findall(r"\n## pretrain\n(.*?)\n## ", commands, re.DOTALL)
    options = option_names("byol") - {"method"}
    assert [name for name in options if f"--{name.replace('_', '-')}" not in of_pretrain] == []


def test_what_a_note_does():
    page = "<!-- add: --epochs 1 -->\n```sh\nhypersphere pretrain byol  # comment\nls\n```\n"
    (block,) = execute.blocks_of(page)
    assert block.code == "hypersphere pretrain byol --epochs 1  # comment\nls\n"
    (useless,) = execute.blocks_of(page.replace("pretrain", "evaluate"))
    with pytest.raises(ValueError, match="changes nothing"):
        assert useless.code
    (skipped,) = execute.blocks_of("<!-- not run: needs a GPU -->\n```python\n1 / 0\n```\n")
    assert not skipped.is_run


def test_a_block_that_fails_stops_the_page(tmp_path):
    for page in ("```sh\nfalse\n```\n", "```python\n1 / 0\n```\n"):
        with pytest.raises(RuntimeError):
            execute.run_page(page, tmp_path)
