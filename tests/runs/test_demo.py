import json

import pytest

import hypersphere.runs.demo
from hypersphere.runs.demo import demo
from hypersphere.train import RunInterrupted
from hypersphere.util.files import next_free_folder


def test_the_demo_ends_with_a_table_and_says_where_it_is(tmp_path, capsys):
    folder = demo(tmp_path / "demo", epochs=1)
    printed = capsys.readouterr().out
    for word in ("raw pixels", "random encoder", "BYOL", "BYOL + Uni", "BYOL-MHE", str(folder)):
        assert word in printed
    saved = json.loads((folder / "demo.json").read_text())
    assert saved["results"].keys() == {"raw pixels", "random encoder", "BYOL", "BYOL + Uni", "BYOL-MHE"}
    assert next_free_folder(tmp_path / "demo").name == "demo-2"  # where another would go


def test_an_interrupted_demo_is_run_again(tmp_path, monkeypatch):
    def start(config):
        raise RunInterrupted(3, 2)

    monkeypatch.setattr(hypersphere.runs.demo, "start", start)
    with pytest.raises(RunInterrupted, match=r"^stopped: .*run the demo again$"):
        demo(tmp_path / "demo", epochs=1)
