"""The regularizer's gradient beside the loss's while a run learns: against backward passes of the method itself."""

import copy
import math
import signal
import threading

import pytest
import torch
from torch import nn

from hypersphere.config import recipe
from hypersphere.data import Images, load_data
from hypersphere.diagnostics.gradients import GradientMonitor, Losses, gradient_ratios
from hypersphere.methods import METHODS, Batch
from hypersphere.nn import ENCODERS
from hypersphere.regularize import EnergyRegularizer, OrthogonalityRegularizer
from hypersphere.runs import monitors
from hypersphere.runs.build import build_method, view_pipeline
from hypersphere.runs.machine import training_execution
from hypersphere.runs.monitors import monitors_of
from hypersphere.runs.pretraining import pretrain
from hypersphere.train import RunInterrupted, load_checkpoint, read_metrics, record
from hypersphere.views import Views
from tests.networks import SMALL_ENCODER, small, those_of

SMALL = {"encoder": SMALL_ENCODER, "hidden": 16, "projection": 8, "device": "cpu"}
CPU = torch.device("cpu")


class Forgetful(nn.Module):
    """Draws random numbers whenever it learns."""

    num_features = 32

    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.dropout = encoder, nn.Dropout(0.2)

    def forward(self, x):
        return self.dropout(self.encoder(x))


ENCODERS["tests/forgetful"] = lambda channels, stem, norm: Forgetful(small(channels, stem, norm))


@pytest.fixture(scope="module")
def digits():
    return load_data("digits")


def built(config, channels=1):
    torch.manual_seed(0)
    return build_method(config, channels, 10)


def gradient_monitors(config, method, learnt, held_out, **options):
    found = monitors_of(config, method, learnt, held_out, training_execution(config), **options)
    return [monitor for monitor in found if isinstance(monitor, GradientMonitor)]


def norm_of_gradients(network):
    numbers = [number for p in network.parameters() if p.grad is not None for number in p.grad.double().flatten()]
    return math.sqrt(sum(float(number) ** 2 for number in numbers))


def by_hand(config, method, learnt, regularizer):
    sample = torch.arange(min(256, config.micro_batch or config.batch))
    views = Views(view_pipeline(config), config.seed).training(learnt.pixels, sample, 0)
    twins = copy.deepcopy(method), copy.deepcopy(method)
    twins[0](Batch(views, sample, learnt.labels[sample])).loss.backward()
    regularizer(twins[1]).backward()
    names = [name for name, part in method.named_children() if any(p.requires_grad for p in part.parameters())]
    of_loss, of_regularizer = ({name: norm_of_gradients(getattr(twin, name)) for name in names} for twin in twins)
    return {f"gradient_ratio/{name}": of_regularizer[name] / of_loss[name] for name in names}


def energy(weight, *where):
    return lambda method: EnergyRegularizer(method, 2, "geodesic", weight, where=where)()


@pytest.mark.parametrize(
    ("name", "options", "regularizer"),
    [
        ("byol-mhe", {"energy": 3.0, "energy_layers": ("predictor",)}, energy(3.0, "predictor")),
        ("byol-uni-mhe", {"batch": 512, "micro_batch": 64}, energy(10.0, "projector", "predictor")),
        (
            "simsiam",
            {"energy": 0.5, "orthogonality": 2.0, "energy_layers": ("encoder", "predictor")},
            lambda method: (
                energy(0.5, "encoder", "predictor")(method)
                + OrthogonalityRegularizer(method, weight=2.0, where=("encoder", "predictor"))()
            ),
        ),
    ],
)
def test_ratios_are_those_of_two_backward_passes(digits, name, options, regularizer):
    config = recipe(name, "digits", **SMALL, **options)
    method = built(config)
    (monitor,) = gradient_monitors(config, method, *digits)
    found, wanted = monitor(method.encoder), by_hand(config, method, digits[0], regularizer)
    assert found.keys() == wanted.keys() == {f"gradient_ratio/{part}" for part in ("encoder", "projector", "predictor")}
    assert found == pytest.approx(wanted, rel=1e-4)
    for part in ("encoder", "projector", "predictor"):
        assert (found[f"gradient_ratio/{part}"] > 0) == (part in config.energy_layers)


def test_ratios_of_known_gradients():
    a, b, c = (nn.Linear(2, 1, bias=False) for _ in range(3))
    c.requires_grad_(False)
    x = torch.tensor([3.0, 4.0])
    loss, regularizer = (a(x) + c(x)).sum(), 2 * a.weight.sum() + b.weight.sum()
    found = gradient_ratios({"a": a, "b": b, "both": nn.Sequential(a, b), "c": c}, loss, regularizer)
    assert found.pop("a") == pytest.approx(math.sqrt(8) / 5)
    assert found.pop("both") == pytest.approx(math.sqrt(8 + 2) / 5)
    assert math.isnan(found.pop("b"))  # of which the loss is no function
    assert found == {"c": 0}
    assert gradient_ratios({"a": a}, a(x).sum(), torch.zeros(())) == {"a": 0}
    assert math.isnan(gradient_ratios({"a": a}, math.inf * a(x).sum(), a.weight.sum())["a"])


@pytest.mark.parametrize("name", [name for name in METHODS if name != "byol"])
def test_every_method_has_ratios(digits, name):
    crops = {"small_crops": 1} if name in ("swav", "dino") else {}
    config = recipe(f"{name}-mhe", "digits", **those_of(name, **SMALL), **crops)
    method = built(config)
    method.start_trial(len(digits.train))
    (monitor,) = gradient_monitors(config, method, *digits)
    found = monitor(method.encoder)
    assert not monitor.failed
    assert "gradient_ratio/encoder" in found
    assert "gradient_ratio/target" not in found
    assert max(value for value in found.values() if not math.isnan(value)) > 0
    if name not in ("swav", "dino"):  # of which prototypes do not learn from the loss in the first epoch
        assert all(map(math.isfinite, found.values()))


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_the_precision_is_the_trainers(digits, precision):
    exact, coarse = (recipe("byol-mhe", "digits", **SMALL, precision=name) for name in ("float32", precision))
    method = built(exact)
    wanted, found = (gradient_monitors(config, method, *digits)[0](method.encoder) for config in (exact, coarse))
    assert found == pytest.approx(wanted, rel=0.05)
    assert found != pytest.approx(wanted, rel=1e-5)


def test_the_run_is_left_as_it_is(digits):
    config = recipe("moco-mhe", "digits", **SMALL | {"encoder": "tests/forgetful"})
    method = built(config).train()
    method.encoder.dropout.eval()  # a mode of its own
    before, drawn = copy.deepcopy(method.state_dict()), torch.get_rng_state()
    (monitor,) = gradient_monitors(config, method, *digits)
    with torch.no_grad():
        first = monitor(method.encoder)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())
    assert all(p.grad is None for p in method.parameters())
    assert (method.training, method.encoder.dropout.training) == (True, False)
    assert monitor(method.encoder) == first


@pytest.mark.parametrize("name", ["byol-mhe", "moco-mhe"])
def test_a_run_learns_the_same_with_the_monitor_and_without(name, tmp_path, monkeypatch):
    """Of batches, queues, moving averages and random numbers; and again when it goes on from a checkpoint."""
    options = {**SMALL, "encoder": "tests/forgetful", "epochs": 3, "warmup": 1, "knn_every": 1, "progress": False}
    watched = pretrain(name, "digits", **options, out=tmp_path / "with")
    of_watched = [line for line in watched.metrics if "epoch" in line]
    assert all(math.isfinite(line["gradient_ratio/encoder"]) for line in of_watched)
    assert [line["epoch"] for line in of_watched] == [1, 2, 3]

    def interrupted(self, log, epoch):
        self.stop.extend([signal.SIGTERM] * (epoch == 2))
        return watch(self, log, epoch)

    watch = record.Record._run_monitors
    with monkeypatch.context() as patch:
        patch.setattr(record.Record, "_run_monitors", interrupted)
        with pytest.raises(RunInterrupted):
            pretrain(name, "digits", **options, out=tmp_path / "again")
    again = pretrain(resume=tmp_path / "again", progress=False)
    assert read_metrics(again.path / "metrics.jsonl") == watched.metrics

    monkeypatch.setattr(monitors, "_gradients", lambda *given: [])
    alone = pretrain(name, "digits", **options, out=tmp_path / "without")
    assert not any("gradient_ratio/encoder" in line for line in alone.metrics)
    states = [load_checkpoint(run.path / "checkpoint.pt") for run in (watched, alone, again)]
    for other in states[1:]:
        assert torch.equal(states[0]["random"], other["random"])
        for key, value in states[0]["method"].items():
            assert torch.equal(value, other["method"][key]), key


def test_who_has_no_ratios(digits, monkeypatch):
    config = recipe("byol-mhe", "digits", **SMALL)
    method = built(config)
    assert len(gradient_monitors(config, method, *digits)) == 1
    assert gradient_monitors(config.replace(energy=0.0), method, *digits) == []
    assert gradient_monitors(config.replace(knn_every=0), method, *digits) == []
    assert len(gradient_monitors(config.replace(energy=0.0, orthogonality=1.0), method, *digits)) == 1
    clusters = recipe("deepcluster-mhe", "digits", **SMALL)
    assert len(gradient_monitors(clusters, built(clusters), *digits)) == 1
    assert gradient_monitors(clusters, built(clusters), *digits, whole=False) == []
    assert len(gradient_monitors(config, method, *digits, whole=False)) == 1
    monkeypatch.setattr(monitors, "world_size", lambda: 2)  # a loss would wait for the other process
    assert gradient_monitors(config, method, *digits) == []


@pytest.mark.parametrize(("side", "batch", "images"), [(96, 1024, 227), (32, 1024, 240), (32, 64, 64)])
def test_few_images_are_looked_at(side, batch, images):
    data = {32: "cifar10", 96: "stl10"}[side]
    small_networks = {"encoder": "hypersphere/digits", "hidden": 8, "projection": 4, "device": "cpu"}
    config = recipe("byol-mhe", data, batch=batch, **small_networks)
    learnt = Images(torch.randint(0, 256, (240, 3, side, side), dtype=torch.uint8), torch.arange(240) % 2, ("a", "b"))
    method, seen = built(config, channels=3), []
    method.projector[0].register_forward_hook(lambda module, given, found: seen.append(len(found)))  # kept by copies
    (monitor,) = gradient_monitors(config, method, learnt, learnt)
    assert math.isfinite(monitor(method.encoder)["gradient_ratio/predictor"])
    assert set(seen) == {images}


def test_what_cannot_be_copied_is_told_once_and_ends_no_run(digits, capsys):
    config = recipe("byol-mhe", "digits", **SMALL)
    method = built(config)
    method.lock = threading.Lock()
    (monitor,) = gradient_monitors(config, method, *digits)
    assert monitor(method.encoder) == monitor(method.encoder) == {}
    told = capsys.readouterr().err
    assert told.count("gradient ratios are not recorded (cannot pickle") == 1

    tried = []

    def out_of_memory() -> Losses:
        tried.append(1)
        raise torch.OutOfMemoryError("CUDA out of memory")

    full = GradientMonitor(1, out_of_memory, CPU)
    assert full(method.encoder) == full(method.encoder) == {}
    assert len(tried) == 1
    assert "gradient ratios are not recorded (CUDA out of memory" in capsys.readouterr().err
