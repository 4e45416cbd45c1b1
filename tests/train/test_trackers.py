"""Copies of the log at other services, written by their own libraries without a network."""

import json
import sys
import types

import pytest

import hypersphere as hs
from hypersphere.config import Config
from hypersphere.errors import UserError
from hypersphere.train import Log, read_metrics
from hypersphere.train.trackers import IDS, TRACKERS, Trackers, check_trackers
from tests.networks import SMALL_ENCODER

LINES = [(1, {"loss": 2.0, "lr": 0.1}), (2, {"epoch": 1, "knn": 50.0, "energy/features.1": 0.5})]


def write(folder, name, lines, step=0):
    log = Log(folder, step, Trackers([name], folder, Config().to_json()))
    for number, values in lines:
        log.write(number, values)
    log.close()
    return json.loads((folder / IDS).read_text())[name]


@pytest.mark.filterwarnings("ignore")
def test_mlflow_gets_every_line_and_a_resumed_run_goes_on(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/there")
    folder = tmp_path / "my-run"
    folder.mkdir()
    first = write(folder, "mlflow", LINES)
    assert write(folder, "mlflow", [(3, {"loss": 1.0})], step=2) == first
    client = mlflow.MlflowClient()
    run = client.get_run(first)
    assert (run.info.run_name, run.info.status, run.data.params["epochs"]) == ("my-run", "FINISHED", "300")
    assert [(m.step, m.value) for m in client.get_metric_history(first, "loss")] == [(1, 2.0), (3, 1.0)]
    assert run.data.metrics["energy/features.1"] == 0.5
    assert client.get_experiment(run.info.experiment_id).name == "hypersphere"


@pytest.mark.filterwarnings("ignore")
def test_wandb_offline_gets_every_line_and_a_resumed_run_goes_on(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    folder = tmp_path / "my-run"
    folder.mkdir()
    first = write(folder, "wandb", LINES)
    assert write(folder, "wandb", [(2, {"loss": 1.0})], step=1) == first  # a step that it has seen
    wandb.teardown()  # its process writes the rest
    found = [line for file in sorted(folder.glob("wandb/offline-*/*.wandb")) for line in history(file)]
    assert [(line["step"], line.get("loss"), line.get("knn")) for line in found] == [
        (1, 2.0, None),
        (2, None, 50.0),
        (2, 1.0, None),
    ]
    assert len([*folder.glob(f"wandb/offline-*/run-{first}.wandb")]) == 2


def history(file):
    """The lines in a file of wandb: after 7 bytes, records with a header of checksum (4), length (2) and kind (1)."""
    from wandb.proto import wandb_internal_pb2

    content, at = file.read_bytes(), 7
    while at + 7 < len(content) < 2**15:
        end = at + 7 + int.from_bytes(content[at + 4 : at + 6], "little")
        record = wandb_internal_pb2.Record.FromString(content[at + 7 : end])
        if record.history.item:
            yield {".".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item}
        at = end


class Broken:
    """A service that begins, and then fails."""

    id = "one"

    def __init__(self, *arguments):
        pass

    def write(self, step, values):
        raise ConnectionError(f"no network at step {step}")

    def close(self):
        raise AssertionError("left out already")


def test_a_service_that_fails_is_left_out_and_the_run_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(TRACKERS, "wandb", Broken)
    monkeypatch.setitem(sys.modules, "wandb", types.ModuleType("wandb"))
    sys.modules["wandb"].__spec__ = types.SimpleNamespace()
    small = {"encoder": SMALL_ENCODER, "hidden": 32, "projection": 8, "device": "cpu", "knn_every": 0, "log_every": 1}
    run = hs.pretrain("byol", "digits", epochs=1, out=tmp_path / "run", track="wandb", progress=False, **small)
    assert run.step == len(read_metrics(run.path / "metrics.jsonl")) == 8
    assert capsys.readouterr().err.count("wandb failed, and is left out from here on: no network at step 1") == 1


def test_a_package_that_is_missing_is_told_before_the_start(monkeypatch):
    monkeypatch.setattr("hypersphere.train.trackers.find_spec", lambda name: None)
    check_trackers(())
    with pytest.raises(UserError, match=r"`track` mlflow needs a package: pip install mlflow"):
        check_trackers(["mlflow"])


def test_a_tracker_does_not_change_the_hash():
    assert Config(track="wandb").hash == Config().hash
    with pytest.raises(UserError, match="`track` must be one of tensorboard, wandb, mlflow, got 'comet'"):
        Config(track="comet")
