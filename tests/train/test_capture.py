"""Updates as a CUDA graph against updates one by one. These need a GPU."""

import threading

import pytest
import torch
from torch import nn

from hypersphere.config import recipe
from hypersphere.data import load_data
from hypersphere.methods import BYOL, Batch
from hypersphere.nn import build_encoder
from hypersphere.optim import LARS
from hypersphere.runs.build import build_method, trainer_of
from hypersphere.runs.machine import training_execution
from hypersphere.train import CapturedUpdate, Trainer
from hypersphere.views import PIPELINES, Views
from tests.networks import those_of

OURS = ("simclr", "simsiam", "moco", "infomin", "barlow", "vicreg", "supervised")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def trainer(name="byol-mhe", **options):
    small = those_of(name, hidden=64, projection=16)
    config = recipe(name, "digits", device="cuda", **small, **options)
    how = training_execution(config)
    torch.manual_seed(0)
    method = build_method(config, 1, 10).to(how.device).to(memory_format=how.layout).train()
    return trainer_of(config, method, how)


def batches(dtype, count):
    images = load_data("digits")[0].to(torch.device("cuda"))
    views = Views(PIPELINES["digits"], 0)
    for sample in torch.arange(count * 64, device="cuda").view(count, 64):
        yield [Batch(views.training(images.pixels, sample, 0, dtype), sample, images.labels[sample])]


@pytest.mark.parametrize("optimizer", ["lars", "sgd", "adamw", "muon"])
def test_replays_are_the_updates(optimizer):
    one, other = trainer(optimizer=optimizer, precision="float32"), trainer(optimizer=optimizer, precision="float32")
    captured = CapturedUpdate(one.update, one.device)
    rtol = (
        5e-3 if optimizer in ("adamw", "muon") else 1e-3
    )  # where a gradient is rounding alone, Adam takes a whole step by it
    for step, batch in enumerate(batches(torch.float32, 8)):
        lr, progress = 0.001 * (step + 1), step / 8
        ours, theirs = captured(batch, lr, progress), other.update(batch, lr, progress)
        torch.testing.assert_close(ours["loss"], theirs["loss"], rtol=rtol, atol=1e-4)
    assert captured.graph is not None


@pytest.mark.parametrize("name", OURS)
def test_a_replay_keeps_what_a_method_writes(name):
    """Queues and counters: in place, so that a replay goes on from them."""
    one, other = trainer(name, precision="float32"), trainer(name, precision="float32")
    captured = CapturedUpdate(one.update, one.device)
    for step, batch in enumerate(batches(torch.float32, 8)):
        ours, theirs = captured(batch, 1e-4, step / 8), other.update(batch, 1e-4, step / 8)
        torch.testing.assert_close(ours["loss"], theirs["loss"], rtol=1e-3, atol=1e-3)
    assert captured.graph is not None
    for (key, a), b in zip(one.method.named_buffers(), other.method.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=0.02, atol=0.02, msg=key)


@pytest.mark.parametrize("name", OURS)
def test_every_method_is_recorded_in_bfloat16(name):
    one = trainer(name, precision="bfloat16")
    captured = CapturedUpdate(one.update, one.device)
    losses = [captured(batch, 1e-3, 0.1)["loss"].item() for batch in batches(torch.bfloat16, 6)]
    assert captured.graph is not None
    assert torch.tensor(losses).isfinite().all()


def test_other_threads_may_pin_memory_during_the_recording():
    """As the one does that feeds images from files."""
    one, over, kept, failed = trainer(), threading.Event(), [], []

    def pin():
        while not over.is_set():
            try:
                kept.append(torch.empty(1 << 20).pin_memory())  # kept, so that each is allocated anew
            except RuntimeError as error:
                failed.append(error)
                return

    thread = threading.Thread(target=pin)
    thread.start()
    captured = CapturedUpdate(one.update, one.device)
    for batch in batches(torch.bfloat16, 6):
        captured(batch, 0.001, 0.0)
    over.set()
    thread.join()
    assert captured.graph is not None
    assert kept
    assert not failed


def test_a_replay_reads_its_numbers():
    """At a learning rate of 0 weights stay, at the end of the plan the target does; else both move."""
    one = trainer(optimizer="lars")
    captured = CapturedUpdate(one.update, one.device)
    numbers = [(0.1, 0.1)] * 5 + [(0.0, 0.1), (0.1, 1.0)]
    for (lr, progress), batch in zip(numbers, batches(torch.bfloat16, len(numbers)), strict=True):
        online, target = (net[0].weight.detach().clone() for net in (one.method.projector, one.method.target[1]))
        captured(batch, lr, progress)
        assert torch.equal(online, one.method.projector[0].weight) == (lr == 0)
        assert torch.equal(target, one.method.target[1][0].weight) == (progress == 1)
    assert captured.graph is not None


class Asks(nn.Module):
    def forward(self, x):
        return x * float(x.abs().max() > 0)  # a question to the GPU


def test_what_cannot_be_recorded_goes_on_one_by_one(capsys):
    encoder = nn.Sequential(build_encoder("hypersphere/digits", channels=1), Asks())
    method = BYOL(encoder, 128, hidden=64, projection=16).cuda().train()
    one = Trainer(method, LARS(method.parameters(), lr=0.0), None, torch.device("cuda"), torch.bfloat16)
    captured = CapturedUpdate(one.update, one.device)
    losses = [float(captured(batch, 0.01, 0.1)["loss"]) for batch in batches(torch.bfloat16, 6)]
    assert captured.graph is None
    assert all(0 < loss < 8 for loss in losses)
    assert "launched one by one" in capsys.readouterr().err
    assert torch.randn(3, device="cuda").isfinite().all()  # a generator that still records would refuse
