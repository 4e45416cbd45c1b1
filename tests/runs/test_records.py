"""Results as records."""

import sys

import pytest

import hypersphere as hs
from hypersphere.config import recipe
from hypersphere.errors import UserError
from hypersphere.runs.results import Result


@pytest.fixture
def folder(tmp_path):
    for seed in (0, 1):
        config = recipe("byol", "digits", seed=seed, lr=0.25)
        evaluation = {"knn": {"top1": 90.0 + seed}, "sphere": {"uniformity": -2.0}}
        Result("cell", config, config.hash, evaluation, 1.5, {}, history=[{"epoch": 1}]).write(tmp_path / "results")
    return tmp_path


def test_a_record_has_options_and_measures(folder):
    for where in (folder, folder / "results"):
        first, second = hs.load_results(where)
        assert (first["title"], first["seed"], first["lr"], first["knn/top1"]) == ("byol", 0, 0.25, 90.0)
        assert (second["seed"], second["sphere/uniformity"], second["history"]) == (1, -2.0, [{"epoch": 1}])


def test_records_are_a_frame(folder, monkeypatch):
    pandas = pytest.importorskip("pandas")
    frame = hs.load_results(folder, as_frame=True)
    assert isinstance(frame, pandas.DataFrame)
    assert frame.groupby("method")["knn/top1"].mean()["byol"] == 90.5
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="`as_frame` needs pandas: pip install pandas"):
        hs.load_results(folder, as_frame=True)


def test_no_results_are_told(tmp_path):
    with pytest.raises(UserError, match="has no results"):
        hs.load_results(tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        hs.load_results(tmp_path / "nowhere")
