import os
import sys

os.environ["OMP_NUM_THREADS"] = "1"  # two test processes on two cores

import pytest
import torch

from tests.folders import draw

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # kernels run on the CPU; read when they are defined


@pytest.fixture(autouse=True, scope="session")
def _home_of_tests(tmp_path_factory):
    """The record of files that the user wrote is not the one of whoever runs the tests."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(autouse=True)
def _one_thread_and_a_seed():
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """The current folder, as at the command line: not on Python's path. What is imported from it is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield tmp_path
    for module in tmp_path.glob("*.py"):
        sys.modules.pop(module.stem, None)


@pytest.fixture
def folder(tmp_path):
    """36 pictures in two classes, and three files that are none."""
    for n in range(36):
        kind = ("red", "blue")[n % 2]
        draw(
            tmp_path / "in" / kind / f"{n:02}.{'png' if n % 3 else 'jpg'}",
            n,
            (180, 20, 20) if n % 2 == 0 else (20, 20, 180),
        )
    (tmp_path / "in/red/broken.jpg").write_bytes(b"no picture")
    (tmp_path / "in/red/empty.png").write_bytes(b"")
    (tmp_path / "in/blue/cut.jpg").write_bytes((tmp_path / "in/red/00.jpg").read_bytes()[:400])
    return tmp_path / "in"
