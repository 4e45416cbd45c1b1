import contextlib
import copy
import json
import math
import os
import signal
from functools import partial

import pytest
import torch
from torch import nn

from hypersphere.config import recipe
from hypersphere.data import SOURCES, Images, balanced, load_data
from hypersphere.data.loader import MemoryLoader
from hypersphere.errors import UserError
from hypersphere.evaluate import KnnMonitor
from hypersphere.methods import BYOL, Batch
from hypersphere.optim import LARS
from hypersphere.regularize import EnergyRegularizer
from hypersphere.runs.pretraining import pretrain
from hypersphere.train import (
    Log,
    Plan,
    RunInterrupted,
    Trainer,
    load_checkpoint,
    read_metrics,
    record,
    restore,
    save_checkpoint,
    train,
)
from hypersphere.train.stopping import asked
from hypersphere.util.launcher import remember_launcher
from hypersphere.views import PIPELINES, Views
from tests.networks import SMALL_ENCODER
from tests.pictures import risen

CPU = torch.device("cpu")
WHOLE = {"hash": "", "seconds": 0.0, "method": {"w": torch.ones(3)}, "optimizer": {}}
SMALL = {"encoder": SMALL_ENCODER, "hidden": 32, "projection": 8, "progress": False, "device": "cpu"}


def method(norm="batch"):
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16) if norm == "batch" else nn.Identity())
    return BYOL(encoder, 16, hidden=32, projection=8, norm=norm)


def trainer_of(model, precision=torch.float32, energy=0.0):
    groups = [{"params": [p for p in model.parameters() if p.requires_grad]}]
    regularizer = EnergyRegularizer(model, weight=energy, where="predictor") if energy else None
    return Trainer(model, LARS(groups, lr=0.0, trust=0.1), regularizer, CPU, precision)


def batch(n):
    return Batch((torch.randn(n, 1, 8, 8), torch.randn(n, 1, 8, 8)), torch.arange(n), None)


def parts(whole, n):
    views = zip(*(view.split(n) for view in whole.views), strict=True)
    return [Batch(pair, sample, None) for pair, sample in zip(views, whole.sample.split(n), strict=True)]


def test_accumulated_micro_batches_are_one_batch():
    """Without batch statistics, four quarters give the update of the whole, with the regularizer counted once."""
    whole = batch(32)
    one, four = trainer_of(method("none"), energy=3.0), trainer_of(method("none"), energy=3.0)
    seen = [t.update(batches, 0.1, 0.2) for t, batches in ((one, [whole]), (four, parts(whole, 8)))]
    for name in seen[0]:
        torch.testing.assert_close(seen[0][name], seen[1][name])
    for a, b in zip(one.method.parameters(), four.method.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    assert seen[0]["loss"] == seen[0]["byol"] + seen[0]["regularizer"]


def test_the_target_moves_once_per_update():
    trainer = trainer_of(method())
    before = copy.deepcopy(trainer.method)
    trainer.update(parts(batch(32), 8), 0.1, 0.0)
    ours, was, online = (m.state_dict() for m in (trainer.method.target[1], before.target[1], trainer.method.projector))
    torch.testing.assert_close(ours["0.weight"], 0.99 * was["0.weight"] + 0.01 * online["0.weight"])


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_mixed_precision_takes_nearly_the_same_step(precision):
    whole = batch(32)
    exact, mixed = trainer_of(method()), trainer_of(method(), precision)
    a, b = (t.update([whole], 0.1, 0.0) for t in (exact, mixed))
    assert b["loss"].item() == pytest.approx(a["loss"].item(), rel=0.02)
    assert all(p.dtype == torch.float32 for p in mixed.method.parameters())
    start = method().state_dict()
    step = [t.method.projector[0].weight - start["projector.0.weight"] for t in (exact, mixed)]
    assert torch.cosine_similarity(step[0].flatten(), step[1].flatten(), dim=0) > 0.98


def test_the_loop_visits_every_full_batch_in_the_seeded_order(tmp_path):
    images, _ = load_data("digits")
    seen = []

    class Recorder(Views):
        def training(self, pixels, sample, epoch, dtype):
            assert pixels is images.pixels
            seen.append((epoch, sample))
            return super().training(pixels, sample, epoch)

    class Monitor:
        every = 2
        epochs = 0

        def __call__(self, encoder):
            Monitor.epochs += 1
            return {"seen": float(len(seen))}

    plan = Plan(len(images), 3, 500, 250, lr=0.1, warmup_epochs=1, seed=7, log_every=2, save_every=4)
    saved = []
    trainer = trainer_of(method())
    log = Log(tmp_path)
    feed = partial(MemoryLoader(images, Recorder(PIPELINES["digits"], 0)).training, dtype=torch.float32)
    train(trainer, feed, plan, log=log, save=lambda: saved.append(trainer.step), monitors=[Monitor()])
    log.close()
    assert saved == [4, 6]
    for epoch in range(3):
        samples = torch.cat([s for e, s in seen if e == epoch])
        assert len(samples) == len(samples.unique()) == 1000
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert [line["step"] for line in lines] == [2, 2, 4, 4, 6, 6]
    assert [line.get("seen") for line in lines] == [None, 4.0, None, 8.0, None, 12.0]
    assert lines[0]["lr"] == pytest.approx(0.1)


def test_checkpoints_go_by_the_clock_or_by_updates(monkeypatch):
    clock = iter([0, 50, 119, 121, 200, 242, 300])
    monkeypatch.setattr(record.time, "monotonic", lambda: next(clock))
    due = record._save_schedule(None)
    assert [due(step) for step in range(1, 6)] == [False, False, True, False, True]
    due = record._save_schedule(3)
    assert [due(step) for step in range(1, 7)] == [False, False, True, False, False, True]


def feed_of(images):
    return partial(MemoryLoader(images, Views(PIPELINES["digits"], 0)).training, dtype=torch.float32)


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    images = Images(torch.zeros(8, 1, 8, 8, dtype=torch.uint8), torch.zeros(8, dtype=torch.long), ("0",))
    model = method()
    with torch.no_grad():
        model.projector[0].weight.fill_(math.nan)
    plan = Plan(8, 1, 8, 8, lr=0.1, warmup_epochs=0, seed=0, log_every=1, save_every=100)
    with contextlib.closing(Log(tmp_path)) as log, pytest.raises(UserError, match="the loss is nan at step 1"):
        train(trainer_of(model), feed_of(images), plan, log=log, save=lambda: None)


def test_impatience_does_not_cost_the_checkpoint(tmp_path):
    """SIGINT, and again while the checkpoint is written: it is written, then the run stops."""
    images, _ = load_data("digits")
    plan = Plan(len(images), 1, 500, 500, lr=0.1, warmup_epochs=0, seed=0, log_every=1, save_every=1)
    saved = []

    def save():
        for signum in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), signum)
        saved.append(True)

    def disturb(signum, frame):
        raise AssertionError("disturbed")

    before = {s: signal.signal(s, disturb) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        with contextlib.closing(Log(tmp_path)) as log, pytest.raises(RunInterrupted) as stop:
            train(trainer_of(method()), feed_of(images), plan, log=log, save=save)
        assert [signal.getsignal(s) for s in before] == [disturb, disturb]
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
    assert saved == [True]
    assert (stop.value.step, stop.value.signum) == (1, signal.SIGINT)


def test_a_log_goes_on_from_its_checkpoint(tmp_path):
    log = Log(tmp_path)
    for step in range(1, 6):
        log.write(step, {"loss": 1.0 / step})
    log.close()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 6, "lo')  # cut off by a kill
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(b'\n\xff\xfe\x00\n[1]\n3\n{"loss": 1}\n{"step": "2"}\n{"step": null}\n')  # damaged otherwise
    log = Log(tmp_path, step=3)
    log.write(4, {"loss": 9.0})
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert lines[3]["loss"] == 9.0


def test_checkpoints_survive_what_happens_to_them(tmp_path):
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, {**WHOLE, "step": 1})
    (tmp_path / "checkpoint.pt.part").write_bytes(b"left by a killed process")
    save_checkpoint(path, {**WHOLE, "step": 2})
    assert load_checkpoint(path)["step"] == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint.previous.pt", "checkpoint.pt"]
    blob = path.read_bytes()
    for damaged in (blob[: len(blob) // 2], b"", b"not a checkpoint at all"):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"checkpoint.pt is damaged") as told:
            load_checkpoint(path)
        assert "\n" not in str(told.value)
    with pytest.raises(UserError, match="no checkpoint"):
        load_checkpoint(tmp_path / "none.pt")


def test_a_checkpoint_runs_no_code(tmp_path):
    torch.save({"step": print}, tmp_path / "checkpoint.pt")
    with pytest.raises(UserError, match="holds more than a run saves, which could run code when loaded"):
        load_checkpoint(tmp_path / "checkpoint.pt")


def test_another_architecture_is_named(tmp_path):
    with pytest.raises(UserError, match=r"weight has shape \(4, 3\), but \(5, 3\) in this model"):
        restore(nn.Linear(3, 5), nn.Linear(3, 4).state_dict(), tmp_path)
    with pytest.raises(UserError, match="the checkpoint has no bias"):
        restore(nn.Linear(3, 4), nn.Linear(3, 4, bias=False).state_dict(), tmp_path)
    with pytest.raises(UserError, match="the model has no bias"):
        restore(nn.Linear(3, 4, bias=False), nn.Linear(3, 4).state_dict(), tmp_path)


@pytest.mark.parametrize("preset", ["byol", "byol-uni", "byol-mhe", "simclr"])
def test_pretrain_from_python(preset, tmp_path):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    run = pretrain(preset, data="digits", epochs=1, out=tmp_path / "run", **SMALL)
    assert torch.equal(torch.get_rng_state(), before)  # the caller's random numbers are left alone
    assert run.step == 8
    assert run.encoder(torch.randn(2, 1, 8, 8)).shape == (2, 32)
    assert run.metrics[-1]["knn"] > 50
    found = run.evaluate(probes=("knn",))
    assert found["knn"]["top1"] == run.metrics[-1]["knn"]
    assert json.loads((run.path / "evaluation.json").read_text())["validation"] == found
    saved = json.loads((run.path / "run.json").read_text())
    assert saved["hash"] == recipe(preset, "digits", encoder=SMALL_ENCODER, epochs=1, hidden=32, projection=8).hash
    assert ("regularizer" in run.metrics[0]) == (preset == "byol-mhe")
    assert list((run.path / "tensorboard").iterdir())


def test_byol_mhe_learns(tmp_path):
    """A few seconds without labels, and one label a class tells much more than before."""
    small = {"hidden": 256, "projection": 64, "knn_every": 0, "device": "cpu"}
    run = pretrain("byol-mhe", "digits", epochs=8, out=tmp_path / "run", progress=False, **small)
    assert risen(run) > 10


def test_runs_get_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = (pretrain("byol", data="digits", epochs=1, knn_every=0, **SMALL) for _ in range(2))
    assert second.path.name == f"{first.path.name}-2"
    for a, b in zip(first.encoder.parameters(), second.encoder.parameters(), strict=True):
        assert torch.equal(a, b)  # same seed, same run
    with pytest.raises(UserError, match="is not empty: continue with `resume` "):
        pretrain("byol", data="digits", out=first.path, **SMALL)
    with pytest.raises(UserError, match="its epochs is 1, not 2"):
        pretrain("byol", resume=first.path, epochs=2)
    with pytest.raises(UserError, match=r"its energy is 0.0, not 10.0"):
        pretrain("byol-mhe", resume=first.path)
    assert pretrain(resume=first.path, progress=False).step == first.step
    killed = tmp_path / "killed"  # before it could say what it is
    killed.mkdir()
    (killed / ".lock").touch()
    assert pretrain("byol", data="digits", epochs=1, knn_every=0, out=killed, **SMALL).path == killed


def test_a_broken_run_does_not_replace_its_checkpoint(tmp_path):
    with pytest.raises(UserError, match=r"the loss is (nan|inf)"):
        pretrain("byol", "digits", epochs=6, lr=1e30, save_every=1, log_every=40, out=tmp_path / "run", **SMALL)
    saved = load_checkpoint(tmp_path / "run" / "checkpoint.pt")
    assert saved["step"] < 40


def test_a_log_that_cannot_be_written_is_told_once(tmp_path):
    log = Log(tmp_path)
    log._file.close()
    log._file = open("/dev/full", "w")  # noqa: SIM115
    with pytest.raises(UserError, match="No space left"):
        log.write(1, {"loss": 1.0})
    log.close()


def test_the_test_set_is_for_the_final_number(tmp_path):
    run = pretrain("byol", "digits", epochs=1, holdout="test", knn_every=1, out=tmp_path / "run", **SMALL)
    train, _ = load_data("digits", "test")
    rest, some = balanced(train.labels, SOURCES["digits"].validation_per_class)
    on_training_images = KnnMonitor(1, train[rest], train[some], PIPELINES["digits"], 20, 0.1)(run.encoder)
    assert run.metrics[-1]["knn"] == on_training_images["knn"]
    with pytest.raises(UserError, match="was trained on the validation images"):
        run.evaluate(("knn",), holdout="validation")


def test_evaluations_are_kept_beside_each_other(tmp_path):
    run = pretrain("byol", "digits", epochs=1, knn_every=0, out=str(tmp_path / "run"), **SMALL)
    run.evaluate(("few-shot",))
    run.evaluate(("knn",))
    run.evaluate(("knn",), holdout="test")
    kept = run.evaluations
    assert {"1-shot", "5-shot", "knn"} <= kept["validation"].keys()
    assert kept["test"]["knn"]["top1"] > 50
    (run.path / "evaluation.json").write_text("[]")  # not ours: replaced
    assert run.evaluations == {}
    run.evaluate(("few-shot",))
    run.step += 1  # another state of the encoder: what was found before is not of it
    run.evaluate(("knn",))
    assert "1-shot" not in run.evaluations["validation"]


def test_a_run_goes_on_as_it_began(tmp_path):
    options = {"epochs": 1, "knn_every": 0, **SMALL}
    first = pretrain("byol", "digits", out=tmp_path / "a", **options)
    second = pretrain("byol", "digits", out=tmp_path / "b", optimizer="sgd", lr=0.01, **options)
    with pytest.raises(UserError, match=r"its precision is 'float32', not 'bfloat16'"):
        pretrain(resume=first.path, precision="bfloat16")
    with pytest.raises(UserError, match=r"its method is 'byol', not 'simclr'"):
        pretrain("simclr", resume=first.path)
    (second.path / "checkpoint.pt").write_bytes((first.path / "checkpoint.pt").read_bytes())
    with pytest.raises(UserError, match="belongs to another run"):
        pretrain(resume=second.path)
    torch.save({"w": torch.ones(2)}, second.path / "checkpoint.pt")
    with pytest.raises(UserError, match="not a checkpoint of a run"):
        pretrain(resume=second.path)


def test_dropout_goes_on_where_it_was():
    trainer = trainer_of(method())
    saved = trainer.state()
    wanted = torch.rand(5)
    torch.manual_seed(7)
    trainer_of(method()).restore(saved)
    assert torch.equal(torch.rand(5), wanted)


def test_gradients_left_by_a_failed_attempt_are_not_added():
    one, other = trainer_of(method()), trainer_of(method())
    for p in one.method.parameters():
        if p.requires_grad:
            p.grad = torch.full_like(p, float("nan"))
    whole = batch(16)
    assert torch.equal(one.update([whole], 0.1, 0.0)["loss"], other.update([whole], 0.1, 0.0)["loss"])
    for a, b in zip(one.method.parameters(), other.method.parameters(), strict=True):
        assert torch.equal(a, b)


def test_an_optimizer_is_restored_for_the_device_it_is_on():
    """A checkpoint of a GPU says that AdamW is capturable, which a CPU is not."""
    trainer = trainer_of(method())
    trainer.optimizer = torch.optim.AdamW([p for p in trainer.method.parameters() if p.requires_grad], lr=0.0)
    trainer.update([batch(16)], 0.1, 0.0)
    state = copy.deepcopy(trainer.state())
    state["optimizer"]["param_groups"][0]["capturable"] = True
    trainer.restore(state)
    assert trainer.optimizer.param_groups[0]["capturable"] is False
    trainer.update([batch(16)], 0.1, 0.0)


def test_a_stop_during_the_last_update_is_heard_and_the_run_is_whole(tmp_path, monkeypatch):
    write = record._write

    def stopping(log, step, plan, *rest):
        if step == plan.steps:
            signal.raise_signal(signal.SIGTERM)
        return write(log, step, plan, *rest)

    monkeypatch.setattr(record, "_write", stopping)
    with pytest.raises(KeyboardInterrupt, match="stopped after step 2 of 2"):
        pretrain("byol", "digits", epochs=1, batch=512, knn_every=0, out=tmp_path / "run", **SMALL)
    assert load_checkpoint(tmp_path / "run/checkpoint.pt")["step"] == 2


def test_a_process_whose_launcher_is_gone_is_asked_to_stop(monkeypatch):
    """From when it joined its job on: before the first update, too."""
    remember_launcher()
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert asked([]) == 0  # nobody launched it
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert asked([]) == signal.SIGTERM
    assert asked([signal.SIGINT]) == signal.SIGINT
    remember_launcher()
    assert asked([]) == 0
    monkeypatch.setattr("hypersphere.util.launcher._launcher", [])
