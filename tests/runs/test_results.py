"""Result files of tables, sweeps and runs."""

import dataclasses
import json
import math
import sys
from pathlib import Path

import pytest

import hypersphere as hs
from hypersphere.config import Config, recipe
from hypersphere.errors import UserError
from hypersphere.runs.results import CHECKSUM, Result, add_evaluation, evaluations_of, read_evaluations, read_results
from hypersphere.util.files import as_json

RESULTS = Path(__file__).parents[2] / "results"
FILES = sorted(RESULTS.glob("*.json"))


def test_rewriting_a_result_keeps_all_but_its_config_and_adds_a_checksum(tmp_path):
    results = read_results(RESULTS)
    assert len(results) == len(FILES) > 80
    for file, result in zip(FILES, results, strict=True):
        assert result.write(tmp_path).name == file.name
        rewritten = json.loads((tmp_path / file.name).read_text())
        assert len(rewritten.pop(CHECKSUM)) == 64
        before = json.loads(file.read_text())
        before.pop(CHECKSUM, None)  # older results have none
        assert as_json({**rewritten, "config": before["config"]}) == as_json(before)
    assert read_results(tmp_path) == results


def test_a_changed_config_is_written(tmp_path):
    (saved,) = [result for result in read_results(RESULTS) if result.file == FILES[0].name]
    changed = dataclasses.replace(saved, config=saved.config.replace(lr=0.5, out="somewhere", root="data"))
    record = json.loads(changed.write(tmp_path).read_text())
    assert record["config"]["lr"] == 0.5
    assert not {"root", "out"} & record["config"].keys()
    assert read_results(tmp_path)[0].config == changed.config.replace(out=None, root=None)


def test_both_kinds_of_files_keep_nan_as_null(tmp_path):
    evaluation = {"1-shot": {"top1": 50.0, "interval": math.nan}, "sphere": {"lidar": math.inf}}
    Result("cell", Config(), Config().hash, evaluation, 1.0, {}).write(tmp_path / "results")
    add_evaluation(tmp_path, "hash", 3, "test", evaluation)
    (result,) = read_results(tmp_path / "results")
    for found in (result.evaluation, read_evaluations(tmp_path)["test"]):
        assert found["1-shot"]["top1"] == 50
        assert math.isnan(found["1-shot"]["interval"])
        assert math.isnan(found["sphere"]["lidar"])
    assert json.loads((tmp_path / "evaluation.json").read_text())["test"]["sphere"] == {"lidar": None}


def test_evaluations_of_another_state_are_replaced(tmp_path):
    add_evaluation(tmp_path, "hash", 3, "test", {"knn": {"top1": 1.0}, "linear": {"top1": 2.0}})
    add_evaluation(tmp_path, "hash", 3, "test", {"knn": {"top1": 3.0}})
    add_evaluation(tmp_path, "hash", 3, "validation", {"knn": {"top1": 4.0}})
    both = {"test": {"knn": {"top1": 3.0}, "linear": {"top1": 2.0}}, "validation": {"knn": {"top1": 4.0}}}
    assert evaluations_of(tmp_path, "hash", 3) == both
    assert read_evaluations(tmp_path) == {"hash": "hash", "step": 3, **both}
    assert evaluations_of(tmp_path, "hash", 4) == evaluations_of(tmp_path, "another", 3) == {}
    add_evaluation(tmp_path, "hash", 4, "test", {"knn": {"top1": 5.0}})
    assert evaluations_of(tmp_path, "hash", 4) == {"test": {"knn": {"top1": 5.0}}}


DAMAGED = [
    "",
    "[]",
    "{",
    "3",
    '{"cell": "a"}',
    '{"config": {}, "evaluation": 3}',
    '{"config": {}, "evaluation": {"knn": 3}}',
]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file(tmp_path, text):
    """A result is lost work, which the user is told. An evaluation is measured again."""
    (tmp_path / "evaluation.json").write_text(text)
    assert not read_evaluations(tmp_path).get("test")
    with pytest.raises(UserError, match=r"evaluation\.json is damaged \(.*\): repair or remove it"):
        read_results(tmp_path)


@pytest.mark.parametrize("name", ["results", "evaluation"])
def test_a_changed_digit_is_noticed(tmp_path, capsys, name):
    evaluation = {"knn": {"top1": 51.25}, "sphere": {"lidar": math.nan}}
    file = Result("cell", Config(), Config().hash, evaluation, 1.0, {}).write(tmp_path)
    if name == "evaluation":
        file.unlink()
        file = tmp_path / "evaluation.json"
        add_evaluation(tmp_path, "hash", 3, "test", evaluation)
        assert read_evaluations(tmp_path)["test"]["knn"] == evaluation["knn"]
    file.write_text(file.read_text().replace("51.25", "61.25"))
    if name == "evaluation":
        assert read_evaluations(tmp_path) == {}
        assert "does not match its checksum) and ignored: hypersphere evaluate" in capsys.readouterr().err
    else:
        with pytest.raises(UserError, match=r"is damaged \(its content does not match its checksum\): repair or"):
            read_results(tmp_path)


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
