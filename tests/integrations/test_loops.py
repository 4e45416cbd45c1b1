"""A regularizer's gradient and measures of features in loops of other libraries; they need the extra ecosystem."""

import logging
import math
import warnings

import pytest
import torch
from torch import nn

import hypersphere as hs
from hypersphere.errors import UserError
from hypersphere.integrations.feature_monitor import FeatureMonitor, add_gradient, pooled_features

WEIGHT, RATE = 2.0, 0.1


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def data(n=16):
    draw = torch.Generator().manual_seed(1)
    return torch.randn(n, 6, generator=draw), torch.randn(n, 3, generator=draw)


def after_a_step(clip=None):
    """The weights after one step of SGD on the whole data with the term in the loss."""
    model, (x, y) = network(), data()
    regularizer = hs.EnergyRegularizer(model, weight=WEIGHT)
    (nn.functional.mse_loss(model(x), y) + regularizer()).backward()
    if clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= RATE * parameter.grad
    return model


def assert_same(found, wanted):
    for (name, a), b in zip(found.named_parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(a.detach().cpu(), b.detach(), msg=name, rtol=1e-4, atol=1e-6)


def test_features_are_pooled():
    x = torch.randn(4, 5)
    assert pooled_features(x) is x
    torch.testing.assert_close(pooled_features(x[:, None].expand(4, 3, 5)), x)
    torch.testing.assert_close(pooled_features(x[:, :, None, None].expand(4, 5, 2, 2)), x)
    assert pooled_features({"loss": torch.tensor(1.0), "hidden": x}) is x
    assert pooled_features((None, [torch.arange(3), x])) is x
    assert pooled_features("text") is None


def test_the_monitor_measures_what_the_last_forward_passes_gave():
    model, (x, _) = network(), data()
    regularizer = hs.EnergyRegularizer(model)
    monitor = FeatureMonitor(model, ["0", ""], regularizer, every=2, rows=12)
    assert model(x[:4]) is not None
    assert monitor.step() == {}
    for part in x.split(4):
        model(part)
    with torch.no_grad():
        model(torch.zeros(9, 6))  # an evaluation
    found = monitor.step()
    kept = x[4:]
    for name, features in (("0", model[0](kept)), ("output", model(kept))):
        assert found[f"features/{name}/uniformity"] == pytest.approx(hs.uniformity(features).item(), rel=1e-5)
        assert found[f"features/{name}/effective_rank"] == pytest.approx(hs.effective_rank(features).item(), rel=1e-5)
    assert found["energy/2"] == pytest.approx(hs.hyperspherical_energy(model[2].weight).item(), rel=1e-5)
    assert monitor.step() == {}
    monitor.close()
    assert not model[0]._forward_hooks


def test_mistakes_of_the_monitor_are_one_line():
    for arguments, message in (
        ((["O"],), r"the model has no module 'O'"),
        (("0",), r"`modules` must be a list of names, got '0': write \['0'\]"),
        ((["0"], None, 0), "`every` must be at least 1"),
    ):
        with pytest.raises(UserError, match=message):
            FeatureMonitor(network(), *arguments)


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_a_plain_loop_with_a_scaler(micro_batches):
    """As float16 has it: scaled until unscale_."""
    model, (x, y) = network(), data()
    regularizer, optimizer = hs.EnergyRegularizer(model, weight=WEIGHT), torch.optim.SGD(model.parameters(), RATE)
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
    for xs, ys in zip(x.chunk(micro_batches), y.chunk(micro_batches), strict=True):
        scaler.scale(nn.functional.mse_loss(model(xs), ys) / micro_batches).backward()
    add_gradient(regularizer, scaler)
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    scaler.step(optimizer)
    assert_same(model, after_a_step(clip=0.5))


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_accelerate(micro_batches):
    accelerate = pytest.importorskip("accelerate", reason="needs the extra ecosystem")
    from hypersphere.integrations.accelerate import add_gradient

    accelerator = accelerate.Accelerator(gradient_accumulation_steps=micro_batches, cpu=True)
    model, (x, y) = network(), data()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    model, optimizer = accelerator.prepare(model, optimizer)
    regularizer = hs.EnergyRegularizer(model, weight=WEIGHT)
    values = []
    for xs, ys in zip(x.chunk(micro_batches), y.chunk(micro_batches), strict=True):
        with accelerator.accumulate(model):
            accelerator.backward(nn.functional.mse_loss(model(xs), ys))
            values.append(add_gradient(accelerator, regularizer))
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
    assert [value is None for value in values] == [True] * (micro_batches - 1) + [False]
    assert_same(model, after_a_step(clip=0.5))


@pytest.mark.parametrize(("micro_batches", "clip"), [(1, None), (4, None), (4, 0.5)])
def test_lightning(micro_batches, clip, tmp_path):
    lightning = pytest.importorskip("lightning.pytorch", reason="needs the extra ecosystem")
    from hypersphere.integrations.lightning import HypersphereCallback

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = network()

        def training_step(self, batch, index):
            return nn.functional.mse_loss(self.model(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), RATE)

    module = Module()
    regularizer = hs.EnergyRegularizer(module.model, weight=WEIGHT)
    callback = HypersphereCallback(regularizer, ["model.0"], every=1)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data()), batch_size=16 // micro_batches)
    start = regularizer().item()
    with warnings.catch_warnings(action="ignore"):
        trainer = lightning.Trainer(
            max_epochs=1, accumulate_grad_batches=micro_batches, gradient_clip_val=clip, callbacks=[callback],
            accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, default_root_dir=tmp_path,
        )  # fmt: skip
        trainer.fit(module, loader)
    assert_same(module.model, after_a_step(clip))
    logged = trainer.logged_metrics
    assert logged["regularizer"] == pytest.approx(start)
    assert {"energy/0", "energy/2", "features/model.0/uniformity"} <= {*logged}
    features = network()[0](data()[0])
    assert logged["features/model.0/effective_rank"] == pytest.approx(hs.effective_rank(features).item(), rel=1e-4)


def trained_by_transformers(tmp_path, micro_batches, clip, steps=1, to_front=True):
    transformers = pytest.importorskip("transformers", reason="needs the extra ecosystem")
    pytest.importorskip("accelerate", reason="needs the extra ecosystem")
    from hypersphere.integrations.transformers import HypersphereCallback

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = network()

        def forward(self, x, labels):
            output = self.model(x)
            return {"loss": nn.functional.mse_loss(output, labels), "logits": output}

    seen = []

    class Reporter(transformers.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            seen.append(dict(logs))

    module = Model()
    arguments = transformers.TrainingArguments(
        str(tmp_path), per_device_train_batch_size=16 // micro_batches, gradient_accumulation_steps=micro_batches,
        max_steps=steps, learning_rate=RATE, optim="sgd", report_to=[], use_cpu=True, max_grad_norm=clip,
        lr_scheduler_type="constant", save_strategy="no", disable_tqdm=True, logging_steps=1,
    )  # fmt: skip
    regularizer = hs.EnergyRegularizer(module, weight=WEIGHT)
    callback = HypersphereCallback(regularizer, ["model.0"])
    rows = [{"x": x, "labels": y} for x, y in zip(*data(), strict=True)]
    with warnings.catch_warnings(action="ignore"):
        trainer = transformers.Trainer(module, arguments, train_dataset=rows, callbacks=[Reporter()])
        trainer.add_callback(callback) if not to_front else callback.add_to(trainer)
        trainer.train()
    return module.model, trainer, seen, callback


@pytest.mark.parametrize(("micro_batches", "clip"), [(1, 0.0), (4, 0.0), (4, 0.5)])
def test_transformers(micro_batches, clip, tmp_path):
    model, trainer, seen, _ = trained_by_transformers(tmp_path, micro_batches, clip)
    assert_same(model, after_a_step(clip or None))
    assert hasattr(trainer.callback_handler.optimizer, "scaler")  # where the callback looks for it
    start = hs.EnergyRegularizer(network(), weight=WEIGHT)().item()
    for line in (seen[0], trainer.state.log_history[0]):
        assert line["regularizer"] == pytest.approx(start)
        assert {"loss", "energy/model.0", "features/model.0/effective_rank"} <= {*line}
        assert math.isfinite(line["features/model.0/uniformity"])


def test_transformers_scales_the_term_as_the_loss(tmp_path, monkeypatch):
    """With float16, accelerate's optimizer has the scaler."""
    transformers = pytest.importorskip("transformers", reason="needs the extra ecosystem")
    from hypersphere.integrations.transformers import HypersphereCallback

    model = network()
    callback = HypersphereCallback(hs.EnergyRegularizer(model, weight=WEIGHT))
    state, optimizer = transformers.TrainerState(max_steps=4, logging_steps=1), torch.optim.SGD(model.parameters())
    optimizer.scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
    callback.on_train_begin(None, state, None, model=model)
    callback.on_step_begin(None, state, None, model=model, optimizer=optimizer)
    scaled = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    optimizer.scaler.unscale_(optimizer)
    for before, parameter in zip(scaled, (p for p in model.parameters() if p.grad is not None), strict=True):
        torch.testing.assert_close(before, 128 * parameter.grad)


def test_transformers_without_the_front_has_its_own_history_only(tmp_path):
    _, trainer, seen, callback = trained_by_transformers(tmp_path, 1, 0.0, steps=2, to_front=False)
    assert "regularizer" not in seen[0]
    assert [line.get("regularizer") is not None for line in trainer.state.log_history[:2]] == [True, True]
    assert callback.regularizer.progress == 0.5
