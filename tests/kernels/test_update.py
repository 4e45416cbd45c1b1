"""The fused updates against the references, over tensors of many sizes."""

import pytest
import torch

pytest.importorskip("triton")

from hypersphere.kernels import update
from hypersphere.nn import ema_update
from hypersphere.optim import LARS

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [(3,), (300, 70), (64, 5, 3, 3), (1,), (128, 16, 1, 1)]


def tensors():
    made = [torch.randn(shape, device=DEVICE) for shape in SHAPES]
    return [t.to(memory_format=torch.channels_last) if t.ndim == 4 else t for t in made]


@pytest.mark.parametrize("adapt", [True, False])
def test_lars_is_the_reference_over_several_steps(adapt):
    ours = tensors()
    ours[2].zero_()  # a norm of 0: the plain step
    theirs = [torch.nn.Parameter(w.double().clone()) for w in ours]
    velocities = [torch.zeros_like(w) for w in ours]
    optimizer = LARS(
        [{"params": theirs, "adapt": adapt}], lr=torch.tensor(0.3), momentum=0.8, weight_decay=0.1, trust=0.02
    )
    options = {"lr": 0.3, "momentum": 0.8, "decay": 0.1, "trust": 0.02, "adapt": adapt}
    for _ in range(3):
        gradients = tensors()
        for p, g in zip(theirs, gradients, strict=True):
            p.grad = g.double()
        optimizer.step()
        update.lars(ours, gradients, velocities, **options)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b.detach().float(), rtol=1e-5, atol=1e-6)


def test_the_target_follows():
    target, online = tensors(), tensors()
    nets = [torch.nn.ParameterList(t.clone() for t in some) for some in (target, online)]
    ema_update(*nets, torch.tensor(0.7, device=DEVICE))
    update.ema_update(target, online, torch.tensor(0.7, device=DEVICE))
    for a, b in zip(target, nets[0], strict=True):
        torch.testing.assert_close(a, b.detach())


def test_what_the_kernels_take():
    w = torch.zeros(4, 3, 3, 3)
    assert update.takes([w], [w.clone()])
    assert not update.takes([w], [w.to(memory_format=torch.channels_last)])
    assert not update.takes([w], [w.double()])
    assert not update.takes([w[:, :2]], [w[:, :2]])


def test_a_tensor_that_moved_is_found_again():
    table, a, b = update.Table(), torch.zeros(3, device=DEVICE), torch.zeros(3, device=DEVICE)
    assert table.of([a], [b]).tolist() == [a.data_ptr(), b.data_ptr()]
    assert table.of([b], [a]).tolist() == [b.data_ptr(), a.data_ptr()]
    assert table.of([a], [b]) is table.of([a], [b])
