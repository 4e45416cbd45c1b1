"""Updates and whole runs of the methods with prototypes, clusters and words."""

import copy
import signal

import pytest
import torch

from hypersphere.config import recipe
from hypersphere.data import load_data
from hypersphere.methods import Batch
from hypersphere.runs.build import build_method, trainer_of, view_pipeline
from hypersphere.runs.machine import training_execution
from hypersphere.runs.pretraining import pretrain
from hypersphere.train import record
from hypersphere.views import Views
from tests.networks import SMALL_ENCODER
from tests.pictures import risen

NAMES = ("swav", "dino", "deepcluster", "obow")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def trainer(name, **options):
    config = recipe(name, "digits", hidden=64, projection=16, device=DEVICE, **options)
    how = training_execution(config)
    method = build_method(config, 1).to(how.device).to(memory_format=how.layout).train()
    return config, trainer_of(config, method, how)


def batches(config, dtype, count):
    images = load_data("digits")[0].to(torch.device(DEVICE))
    views = Views(view_pipeline(config), 0)
    for sample in torch.arange(count * 64, device=DEVICE).view(count, 64):
        yield Batch(views.training(images.pixels, sample, 0, dtype), sample, images.labels[sample])


@pytest.mark.parametrize("variant", ["", "-mhe", "-uni", "-uni-mhe"])
@pytest.mark.parametrize("name", NAMES)
def test_variants_take_a_step_with_small_crops(name, variant):
    config, one = trainer(name + variant, small_crops=1, prototypes=32)
    (data,) = batches(config, one.input_type, 1)
    assert len(data.views) == 3
    one.method.start_epoch(lambda: [torch.randn(200, 128, device=DEVICE)])
    before = copy.deepcopy(one.method.encoder.state_dict())
    terms = one.update([data], 0.001, 0.5)
    assert all(value.isfinite() for value in terms.values())
    assert name in terms
    assert ("uniformity" in terms, "regularizer" in terms) == ("uni" in variant, "mhe" in variant)
    assert any((before[key] != value).any() for key, value in one.method.encoder.state_dict().items())


@pytest.mark.parametrize("name", ["swav", "dino"])
def test_prototypes_stay_for_the_updates_of_the_first_epoch(name):
    """Of two updates an epoch, the first two."""
    config, one = trainer(name, prototypes=32, epochs=3)
    for step, data in enumerate(batches(config, one.input_type, 4)):
        before = one.method.prototypes.weight.clone()
        one.update([data], 0.01, step / 6)
        moved = (one.method.prototypes.weight - before).abs().max()
        assert (moved > 1e-5) == (step >= 2), step


@pytest.mark.skipif(not torch.cuda.is_available(), reason="captures a CUDA graph")
@pytest.mark.parametrize("name", NAMES)
def test_replays_are_the_updates(name):
    """Also when an epoch begins between them, and with what follows a schedule: a number would be frozen."""
    from hypersphere.train import CapturedUpdate

    torch.manual_seed(0)
    scheduled = {"teacher_temperature": 0.5, "teacher_warmup": 40, "weight_decay_end": 50.0} if name == "dino" else {}
    config, one = trainer(name, small_crops=1, precision="float32", **scheduled)
    other = copy.deepcopy(one.method)
    twin = trainer_of(config, other, training_execution(config))
    captured = CapturedUpdate(one.update, one.device)
    for step, data in enumerate(batches(config, torch.float32, 8)):
        if step in (0, 6):
            features = torch.randn(1200, 128, device=DEVICE)
            one.method.start_epoch(lambda features=features: [features])
            other.start_epoch(lambda features=features: [features])
            other.load_state_dict(one.method.state_dict())  # clusters may turn on the last bit of a sum
        ours, theirs = captured([data], 0.001, step / 8), twin.update([data], 0.001, step / 8)
        torch.testing.assert_close(ours["loss"], theirs["loss"], rtol=2e-3, atol=1e-3)
    assert captured.graph is not None


@pytest.mark.parametrize("name", ["deepcluster", "obow"])
def test_a_run_goes_on_in_the_middle_of_an_epoch_as_if_never_stopped(name, tmp_path, monkeypatch):
    """With its labels or words; two updates an epoch."""
    options = {"encoder": SMALL_ENCODER, "hidden": 16, "projection": 8, "prototypes": 32, "epochs": 2, "batch": 512}
    options |= {
        "log_every": 1,
        "knn_every": 0,
        "device": "cpu",  # on a GPU sums differ by rounding
        "precision": "float32",
        "graph": "off",
        "progress": False,
    }
    whole = pretrain(name, "digits", out=tmp_path / "whole", **options)
    write = record._write
    monkeypatch.setattr(
        record,
        "_write",
        lambda log, step, *a: (write(log, step, *a), step == 3 and signal.raise_signal(signal.SIGINT))[0],
    )
    with pytest.raises(KeyboardInterrupt):
        pretrain(name, "digits", out=tmp_path / "part", **options)
    monkeypatch.setattr(record, "_write", write)
    part = pretrain(resume=tmp_path / "part", progress=False)
    for key, value in whole.method.state_dict().items():
        assert torch.equal(part.method.state_dict()[key], value), key


@pytest.mark.parametrize(
    ("name", "options", "wanted"),
    [
        ("swav", {"epochs": 8}, 8),
        ("dino", {"epochs": 4}, 7),
        ("deepcluster", {"epochs": 4}, 10),
        ("obow", {"epochs": 8, "tau": 0.9}, 4),  # of few updates, each must count
    ],
)
def test_it_learns_digits(name, options, wanted, tmp_path):
    run = pretrain(name, "digits", out=tmp_path / "run", device=DEVICE, knn_every=0, progress=False, **options)
    assert risen(run) > wanted
