import pytest
import torch
from torch import nn

from hypersphere.methods import BYOL, Batch
from hypersphere.nn.norm import standardize_weights
from hypersphere.train.narrow import Narrowed


@pytest.mark.parametrize("standardized", [False, True])
def test_loss_and_gradients_are_autocasts(standardized):
    """Bit by bit: the same numbers are rounded, only at once. What is computed from weights stays with autocast."""
    encoder = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(128, 6))
    if standardized:
        standardize_weights(encoder)
    method = BYOL(encoder, 6, hidden=16, projection=5)
    batch = Batch(tuple(torch.randn(2, 12, 3, 6, 6)), torch.arange(12), None)
    narrowed = Narrowed(method, torch.bfloat16)
    assert all(weight.requires_grad == (not name.startswith("target")) for name, weight in narrowed.trained.items())
    assert not any("parametrizations" in name for name in narrowed.trained)
    trained = [p for p in method.parameters() if p.requires_grad]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted, found = method(batch).loss, narrowed(batch).loss
    assert torch.equal(found, wanted)
    for ours, theirs in zip(*(torch.autograd.grad(loss, trained) for loss in (found, wanted)), strict=True):
        assert ours.dtype == torch.float32
        assert torch.equal(ours, theirs)
