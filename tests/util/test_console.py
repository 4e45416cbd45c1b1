"""Progress on a terminal, in a file and in a notebook."""

import contextlib
import io
import json
import sys
import types

import pytest

from hypersphere.util import console
from hypersphere.util.console import progress_bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("variable", ["", "FORCE_COLOR", "TTY_COMPATIBLE"])
def test_a_file_gets_no_control_characters(monkeypatch, variable):
    if variable:
        monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(sys, "stderr", file := io.StringIO())
    with progress_bar("a task", 4) as bar:
        for done in range(1, 5):
            bar.line(f"line {done}")
            bar.update(done, "a note")
    assert file.getvalue() == "line 1\nline 2\nline 3\nline 4\n"  # the last one says all that the end would
    with progress_bar("a task", 4) as bar:
        bar.update(4, "a note")
    assert file.getvalue().endswith("line 4\n")  # a moment needs no line
    monkeypatch.setattr(console, "MOMENT", 0.0)
    with progress_bar("a task", 4) as bar:
        bar.update(4, "a note")
    assert file.getvalue().endswith("line 4\na task: 100 %, 0 s in all a note\n")


def test_a_terminal_shows_lines_above_the_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with progress_bar("a task", 4) as bar:
        bar.line("a line [with brackets] that is longer than the terminal " + "x" * 100)
        bar.update(4)
    shown = terminal.getvalue()
    assert "a line [with brackets] that is longer" in shown
    assert shown.rindex("100%") > shown.rindex("a line")


def test_a_dumb_terminal_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(console, "MOMENT", 0.0)
    with progress_bar("a task", 1) as bar:
        bar.update(1)
    assert terminal.getvalue() == "a task: 100 %, 0 s in all\n"


def test_a_notebook_shows_the_end(monkeypatch):
    """One output, replaced a few times a second, and once more at the end."""
    shown = []

    class Handle:
        def update(self, content, raw):
            shown.append(content["text/plain"])

    def display(content, raw, display_id):
        shown.append(content["text/plain"])
        return Handle()

    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    with progress_bar("a task", 1000) as bar:
        for done in range(1, 1001):
            bar.update(done, f"loss {done}")
        bar.line("the last epoch")
    assert shown[0] == "a task ░░░░░░░░░░░░░░░░░░░░░░░░ 0 %"
    assert shown[-1] == "the last epoch\na task ████████████████████████ 100 % 0 s in all loss 1000"
    assert len(shown) < 10
    with contextlib.suppress(KeyboardInterrupt), progress_bar("a task", 10) as bar:
        bar.update(5)
        raise KeyboardInterrupt
    assert " 50 % " in shown[-1]


def test_a_notebook_keeps_the_last_lines(monkeypatch):
    monkeypatch.setattr(console._Notebook, "_show", lambda self: None)
    shown = console._Notebook("a task", 10, 0)
    for number in range(50):
        shown.line(str(number))
    assert shown.lines == [str(number) for number in range(30, 50)]


@pytest.mark.filterwarnings("ignore")
def test_a_real_notebook(tmp_path):
    """Run by nbclient, if it is there: the output that is saved ends at 100 %."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    code = "import time\nfrom hypersphere.util.console import progress_bar\nwith progress_bar('task', 100) as bar:\n"
    code += "    for n in range(101):\n        bar.update(n)\n    bar.line('epoch 1/1')"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    text = json.dumps(notebook.cells[0].outputs)
    assert len(notebook.cells[0].outputs) == 1
    assert "epoch 1/1" in text
    assert " 100 %" in text


def test_live_lines_in_a_file_are_printed_now_and_then(monkeypatch, capsys):
    """Those that have changed: every half minute, later after a twentieth of the time."""
    clock = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(console, "PLAIN_EVERY", 30.0)  # a run in a worker changes it
    printed = {}
    with console.live_lines() as show:
        for second in range(0, 3600, 10):
            clock[0] = float(second)
            show([f"run: epoch {second}", "other: waiting"])
            if told := capsys.readouterr().err:
                printed[second] = told.splitlines()
    assert list(printed)[:3] == [30, 60, 90]
    assert printed[30] == ["run: epoch 30", "other: waiting"]
    assert printed[60] == ["run: epoch 60"]
    assert 20 + 15 < len(printed) < 20 + 20 * 2  # twenty in ten minutes, then 20 · ln 6
    with console.live_lines(show=False) as show:
        clock[0] += 1000
        show(["run"])
    assert not capsys.readouterr().err
