"""Options of regularizers that say what counts and how much: also, exclude, every, target, weight."""

import warnings

import pytest
import torch
from torch import nn

import hypersphere as hs
from hypersphere.regularize import EnergyRegularizer, MeanDirectionRegularizer


def test_a_fused_qkv_is_as_attention():
    import timm

    torch.manual_seed(0)
    block = timm.models.vision_transformer.Attention(32, num_heads=4, qkv_bias=True)
    reference = nn.MultiheadAttention(32, 4)
    with torch.no_grad():
        reference.in_proj_weight.copy_(block.qkv.weight)
        reference.out_proj.weight.copy_(block.proj.weight)
    found, wanted = EnergyRegularizer(block), EnergyRegularizer(reference)
    torch.testing.assert_close(found(), wanted())
    assert found.layers["qkv"] == [(32, 32)] * 3


def test_other_matrices_by_name():
    model = nn.ModuleDict({"embed": nn.Embedding(20, 8), "rnn": nn.LSTM(8, 6), "head": nn.Linear(6, 4)})
    with pytest.warns(UserWarning, match=r"EnergyRegularizer covers 5% of the trainable weights"):
        regularizer = EnergyRegularizer(model)
    assert list(regularizer.layers) == ["head"]
    assert set(regularizer.skipped) == {"embed", "rnn"}
    also = {"embed.weight": "rows", "rnn.weight_ih_l0": ("rows", 4), "rnn.weight_hh_l0": "columns"}
    with warnings.catch_warnings(action="error"):
        regularizer = EnergyRegularizer(model, also=also)
    assert regularizer.layers["rnn.weight_ih_l0"] == [(6, 8)] * 4
    assert regularizer.layers["rnn.weight_hh_l0"] == [(6, 24)]
    parts = model["rnn"].weight_ih_l0.chunk(4)
    wanted = sum(map(hs.hyperspherical_energy, parts)) / 4
    torch.testing.assert_close(regularizer.per_layer()["rnn.weight_ih_l0"], wanted)
    for name, how, message in [
        ("gone.weight", "rows", "no parameter 'gone.weight'"),
        ("head.bias", "rows", "is not a matrix"),
        ("embed.weight", "diagonals", "must be"),
        ("embed.weight", ("rows", 3), "must be"),
    ]:
        with pytest.raises(ValueError, match=message):
            EnergyRegularizer(model, also={name: how})


def test_exclude_weight_zero_every_and_progress():
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))
    assert EnergyRegularizer(model, exclude="2").layers == {"0": [(6, 8)]}
    assert EnergyRegularizer(model, exclude="2").skipped["2"] == "excluded"
    with pytest.raises(ValueError, match="leaves no layer"):
        EnergyRegularizer(model, exclude="*")
    assert list(EnergyRegularizer(model, exclude=(name for name in ("1", "2"))).layers) == ["0"]  # 1 is a ReLU
    assert list(EnergyRegularizer(nn.DataParallel(model), exclude="1").layers) == ["0", "2"]
    for typo in ("typo", ["0", "layer*"]):
        with pytest.raises(ValueError, match=r"exclude='(typo|layer\*)' matches no part of the model; .*: 0, 2$"):
            EnergyRegularizer(model, exclude=typo)
    off = EnergyRegularizer(model, weight=0)
    off.measure = None  # is not called
    off().backward()
    assert off().item() == 0
    whole, third = EnergyRegularizer(model), EnergyRegularizer(model, every=3)
    found = [third().item() for _ in range(6)]
    assert found == pytest.approx([3 * whole().item(), 0, 0] * 2)
    ramp = MeanDirectionRegularizer(model, weight=lambda progress: 2 * progress)
    assert ramp().item() == 0
    ramp.progress = 0.5
    assert ramp().item() == pytest.approx(MeanDirectionRegularizer(model)().item())
    with pytest.raises(ValueError, match="at least 0"):
        EnergyRegularizer(model, weight=lambda progress: -1.0)


def test_targets():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 5))
    kept = EnergyRegularizer(model, target="initial")
    assert kept().item() == pytest.approx(0, abs=1e-10)
    before = {name: energy.item() for name, energy in kept.per_layer().items()}
    with torch.no_grad():
        model[0].weight[0] = model[0].weight[1] + 0.01
    assert kept().item() == pytest.approx((kept.per_layer()["0"].item() - before["0"]) ** 2, rel=1e-4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(300):
        optimizer.zero_grad()
        kept().backward()
        optimizer.step()
    assert kept.per_layer()["0"].item() == pytest.approx(before["0"], rel=0.05)
    even = EnergyRegularizer(model, target="even")
    assert even.targets["0"] == pytest.approx(hs.hyperspherical_energy(torch.randn(3000, 8)).item(), rel=0.05)
    assert EnergyRegularizer(model, target=0.3).targets == {"0": 0.3, "1": 0.3}
    assert EnergyRegularizer(model, target=before).targets == before
    with pytest.raises(ValueError, match="target has no number for layer '1'"):
        EnergyRegularizer(model, target={"0": 1.0})
    with pytest.raises(ValueError, match='must be "initial", "even", a number, or numbers by layer, got \'initia\''):
        EnergyRegularizer(model, target="initia")


def test_a_layer_that_is_compiled_later_is_still_the_same():
    model = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 4))
    regularizer = EnergyRegularizer(model)
    wanted = regularizer().item()
    model[0] = torch.compile(model[0])
    assert regularizer().item() == wanted
    model[0] = nn.Linear(8, 6)
    with pytest.raises(RuntimeError, match="layer '0' has been replaced"):
        regularizer()
