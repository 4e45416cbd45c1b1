"""Standard output and standard error that cannot be written: a run goes on, and its files are whole."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hypersphere as hs
from tests.processes import completed

RUN = ("pretrain", "byol", "--data", "digits", "--epochs", "1", "--batch", "256", "--hidden", "8", "--knn-every", "0")
LOST = "hypersphere: could not write to standard output: No space left on device\n"


def _onto(path, *numbers):
    for number in numbers:
        os.dup2(os.open(path, os.O_WRONLY), number)


def fill_stderr():
    _onto("/dev/full", 2)


def fill_stdout():
    _onto("/dev/full", 1)


def close_reader():
    reader, writer = os.pipe()
    os.close(reader)
    for number in (1, 2):
        os.dup2(writer, number)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    ("prepare", "status", "stderr"), [(fill_stderr, 0, ""), (fill_stdout, 1, LOST), (close_reader, 0, "")]
)
def test_a_run_ends_as_ever(tmp_path, prepare, status, stderr):
    found = completed(*RUN, "--out", tmp_path / "run", prepare=prepare)
    assert (found.returncode, found.stderr[-len(LOST) :]) == (status, stderr)
    assert hs.load_run(tmp_path / "run").step == 4


def test_no_file_gets_the_number_of_a_closed_stream(tmp_path):
    """Whatever prints to standard error would otherwise print into that file."""
    code = "import os; from hypersphere.cli import main; main(['--version']); print(os.open('file', os.O_CREAT) > 2)"
    shell = f'cd "{tmp_path}" && "{sys.executable}" -c "{code}" 0<&- 2>&-'
    found = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60)
    assert found.stdout.splitlines()[-1] == "True"


@pytest.mark.parametrize("columns", [1, 4])
def test_help_ends_on_a_narrow_terminal(columns):
    code = "from hypersphere.cli import main; main(['pretrain', '--help'])"
    environment = {**os.environ, "COLUMNS": str(columns)}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert found.stdout.startswith("usage: hypersphere pretrain")
