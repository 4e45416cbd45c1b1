"""Files of strangers: code that they name is not imported, and paths that they name are not read."""

import http.server
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

import hypersphere as hs
from hypersphere.cli import main
from hypersphere.config import recipe
from hypersphere.data.decode import Unreadable, read_image
from hypersphere.errors import UserError
from hypersphere.inference.embedding_files import VectorBatch, writer
from hypersphere.util import references, trust
from tests.folders import draw

EVIL = """
from pathlib import Path
from torch import nn
Path("evil-ran").touch()
def make(channels=1):
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 128))
    network.num_features = 128
    return network
"""
SMALL = {"epochs": 1, "batch": 256, "hidden": 8, "knn_every": 0, "progress": False}
BUILT_IN = ("os:abort", "http.server:test", "code:interact", "torch.distributed.run:main", "pytest:main")
CODE = ("dl.evil:make", *BUILT_IN, "torch:os.abort", "torch:sys.exit", "hypersphere.cli:main")


@pytest.fixture
def stranger(own_folder, monkeypatch):
    """The current folder, and a function that forgets which code and files the user named and wrote."""

    def forget():
        monkeypatch.setattr(references, "_ALLOWED", set())
        monkeypatch.setattr(trust, "_TRUSTED", set())
        monkeypatch.setenv("XDG_STATE_HOME", tempfile.mkdtemp(dir=own_folder))
        for name in ("dl", "dl.evil"):
            sys.modules.pop(name, None)

    forget()
    return own_folder, forget


@pytest.fixture
def downloaded(stranger):
    """The folder dl with a run, and a module beside it that leaves a file if it is imported."""
    folder, forget = stranger
    (folder / "dl").mkdir()
    hs.pretrain("byol", data="digits", out=folder / "dl", **SMALL)
    (folder / "dl/evil.py").write_text(EVIL)
    draw(folder / "in/0.png", 0, (9, 9, 9))
    draw(folder / "in/1.png", 1, (9, 9, 99))
    forget()
    return folder / "dl"


def change_json(file, **fields):
    known = json.loads(file.read_text())
    file.write_text(json.dumps({**known, **fields}))


def change_config(run, **fields):
    change_json(run / "run.json", config={**json.loads((run / "run.json").read_text())["config"], **fields})


COMMANDS = (
    ["diagnose", "dl"],
    ["evaluate", "dl", "--probes", "knn"],
    ["export", "dl"],
    ["embed", "dl", "in", "-o", "x.npz"],
    ["pretrain", "--resume", "dl"],
)


@pytest.mark.parametrize("field", ["method", "encoder", "regularizer", "data"])
def test_a_downloaded_run_does_not_run_its_own_code(downloaded, capsys, field):
    change_config(downloaded, **{field: "dl.evil:make"})
    for command in COMMANDS:
        assert main(command) == 2, command
        told = capsys.readouterr().err
        assert f"dl/run.json: its {field} is dl.evil:make, code that would be imported and run: " in told
        advice = "name it in the command" if command[0] == "pretrain" else "pass --trust if you trust it"
        assert advice in told
    assert main(["report", "dl"]) == 0  # what needs no code
    assert "code that would be imported and run: pass `trust`" in (downloaded.parent / "report.html").read_text()
    assert not (downloaded.parent / "evil-ran").exists()


@pytest.mark.parametrize("code", CODE)
def test_neither_runs_nor_cards_name_code_of_other_packages(downloaded, code):
    exported = Path(shutil.copytree(hs.export(downloaded), "exported"))
    change_json(exported / "card.json", encoder=code)
    with pytest.raises(UserError, match=re.escape(f"card.json: its encoder is {code}, code that")):
        hs.load(exported)
    change_config(downloaded, encoder=code)
    shutil.copy(downloaded / "run.json", exported)  # which wins over the card
    with pytest.raises(UserError, match=re.escape(f"run.json: its encoder is {code}, code that")):
        hs.load(exported)
    assert not (downloaded.parent / "evil-ran").exists()


def test_python_m_has_the_current_folder_on_its_path_and_imports_nothing_from_it(downloaded):
    change_config(downloaded, encoder="dl.evil:make")
    command = [sys.executable, "-m", "hypersphere", "diagnose", "dl"]
    assert subprocess.run(command, capture_output=True, text=True, check=False).returncode == 2
    assert not (downloaded.parent / "evil-ran").exists()


@pytest.mark.parametrize("code", ["hf-hub:evil/net", "resnet18.hf-hub:evil/net", "local-dir:dl", "torchvision/../evil"])
def test_libraries_give_models_that_they_list_alone(downloaded, code):
    exported = hs.export(downloaded)
    change_json(exported / "card.json", encoder=f"timm/{code}")
    with pytest.raises((UserError, AssertionError)):
        hs.load(exported)


def test_trust_allows_it(downloaded):
    change_config(downloaded, encoder="dl.evil:make")
    with pytest.raises(UserError, match="of another architecture"):  # it was imported
        hs.load_run(downloaded, trust=True)
    assert (downloaded.parent / "evil-ran").exists()


def test_your_own_runs_and_exports_need_no_trust(stranger, monkeypatch):
    folder, forget = stranger
    (folder / "evil.py").write_text(EVIL)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "home"))
    run = hs.pretrain("byol", data="digits", encoder="evil:make", out="run", **SMALL)
    hs.export(run)
    shutil.move("run", "moved")
    forget()
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "home"))
    assert hs.load_run("moved").step == run.step
    assert hs.load("moved/export").features == 128
    forget()  # now it belongs to somebody else
    for load in (hs.load, hs.load_run):
        with pytest.raises(UserError, match="its encoder is evil:make, code"):
            load("moved")
    with pytest.raises(UserError, match="its encoder is evil:make, code"):
        hs.load("moved/export")
    assert hs.load("moved/export", trust=True).features == 128


def test_code_that_the_command_names_may_be_named_by_a_run(stranger, capsys):
    folder, forget = stranger
    (folder / "evil.py").write_text(EVIL)
    run = hs.pretrain("byol", data="digits", encoder="evil:make", out="run", **SMALL)
    forget()
    assert main(["pretrain", "--resume", "run"]) == 2
    assert "name it in the command, too, if you trust it" in capsys.readouterr().err
    assert main(["pretrain", "--resume", "run", "--encoder", "evil:make"]) == 0
    assert hs.load_run("run").step == run.step


def test_configs_of_our_own_processes_bring_their_code(stranger):
    folder, forget = stranger
    (folder / "evil.py").write_text(EVIL + "from hypersphere.methods import BYOL\nclass Mine(BYOL):\n    pass\n")
    sent = pickle.dumps(recipe("evil:Mine", "digits", hidden=9))
    forget()
    assert pickle.loads(sent).hidden == 9


@pytest.fixture
def server():
    """A web server of this machine, and the paths that it was asked for."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}", asked
        running.shutdown()


def test_images_that_a_strangers_run_names_are_not_read(stranger, server, capsys):
    url, asked = server
    folder, forget = stranger
    for n in range(40):
        draw(folder / f"private/{n}.png", n, (200, 30, n))
    hs.pretrain(
        "byol", data="private", encoder="hypersphere/digits", size=8, out=folder / "dl", **{**SMALL, "batch": 16}
    )
    forget()
    check = f"names images in {folder}/private, which are not read: pass "
    assert main(["diagnose", "dl"]) == 2
    assert f"{check}--trust" in capsys.readouterr().err
    assert (main(["report", "dl"]), check in (folder / "report.html").read_text()) == (0, True)
    assert main(["diagnose", "dl", "--data", "digits"]) == 0
    assert (main(["report", "dl", "--trust"]), check in (folder / "report.html").read_text()) == (0, False)
    forget()
    listed = {"names": [f"{url}/x.tar::{9 * n}+9::{n}.png" for n in range(40)], "labels": None}
    change_json(folder / "dl/files.json", learnt=listed, held_out=listed)
    assert (main(["diagnose", "dl"]), main(["report", "dl"]), asked) == (2, 0, [])
    change_json(folder / "dl/files.json", learnt={**listed, "names": [str(folder / "private/0.png")]})
    assert main(["diagnose", "dl", "--trust"]) == 2  # the server has no such images
    assert asked != []


def test_images_that_a_strangers_embeddings_name_are_not_shown(stranger, server):
    url, asked = server
    folder, _ = stranger
    for n in range(2):
        draw(folder / f"{n}.png", n, (200, 100, 0))
    about = {"encoder": "dl", "weights": "", "preprocess": {}, "cwd": str(folder)}
    with writer(Path("x.npz"), ".npz", 3, about, names_are_text=True) as write:
        write(VectorBatch(["0.png", "1.png", f"{url}/x.tar::0+9::a.png"], np.eye(3)))
    assert main(["neighbours", "x.npz", "0.png", "--page", "page.html"]) == 0
    page = (folder / "page.html").read_text()
    assert (page.count("data:image/png"), page.count("not read without --trust")) == (1, 2)
    assert asked == []
    assert main(["neighbours", "x.npz", "0.png", "--page", "page.html", "--trust"]) == 0
    assert (folder / "page.html").read_text().count("data:image/png") == 2
    assert asked != []


def test_your_own_embeddings_are_shown(downloaded, stranger):
    assert main(["embed", "dl", "in", "-o", "x.npz"]) == 0
    assert main(["neighbours", "x.npz", "in/0.png", "--page", "page.html"]) == 0
    assert (downloaded.parent / "page.html").read_text().count("data:image/png") == 2


def test_postscript_in_disguise_starts_no_program(tmp_path, monkeypatch):
    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)
    (tmp_path / "x.jpg").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"
    )
    with pytest.raises(Unreadable, match="not an image"):
        read_image(tmp_path / "x.jpg")
    assert not (tmp_path / "started").exists()


def test_a_home_that_cannot_be_written_ends_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    trust.remember_own_file(tmp_path / "file")
    assert not trust.is_trusted(tmp_path / "file")
