import pytest
import torch
from torch import nn

from hypersphere.methods import BYOL, Batch
from hypersphere.nn.norm import standardize_weights
from hypersphere.train.half_precision import HalfPrecisionLoss


@pytest.mark.parametrize("standardized", [False, True])
def test_loss_and_gradients_are_autocasts(standardized):
    """Bit by bit: the same numbers are rounded, only at once. What is computed from weights stays with autocast."""
    encoder = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(128, 6))
    if standardized:
        standardize_weights(encoder)
    method = BYOL(encoder, 6, hidden=16, projection=5)
    batch = Batch(tuple(torch.randn(2, 12, 3, 6, 6)), torch.arange(12), None)
    narrowed = HalfPrecisionLoss(method, torch.bfloat16)
    names = [name for some in narrowed.names.values() for name in some]
    assert "target.1.0.weight" in names
    assert not any("parametrizations" in name for name in names)
    trained = [p for p in method.parameters() if p.requires_grad]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted, found = method(batch).loss, narrowed(batch).loss
    assert torch.equal(found, wanted)
    for ours, theirs in zip(*(torch.autograd.grad(loss, trained) for loss in (found, wanted)), strict=True):
        assert ours.dtype == torch.float32
        assert torch.equal(ours, theirs)


def test_a_shared_weight_is_one_and_an_unused_one_has_no_gradient():
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(6, 6), nn.Linear(6, 6))
    encoder[2].weight = encoder[1].weight
    encoder.unused = nn.Linear(3, 3)
    method = BYOL(nn.Sequential(encoder[:3]), 6, hidden=8, projection=4)
    method.spare = encoder.unused
    batch = Batch(tuple(torch.randn(2, 12, 6)), torch.arange(12), None)
    trained = [p for p in method.parameters() if p.requires_grad]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted, found = method(batch).loss, HalfPrecisionLoss(method, torch.bfloat16)(batch).loss
    gradients = (torch.autograd.grad(loss, trained, allow_unused=True) for loss in (found, wanted))
    for ours, theirs in zip(*gradients, strict=True):
        assert (ours is None) == (theirs is None)
        assert ours is None or torch.allclose(ours, theirs, rtol=0.02, atol=1e-4)
