"""The energy of the neurons of a model: which layers, which neurons, what value."""

import copy

import pytest
import torch
from torch import nn

import hypersphere as hs
from hypersphere.regularize import EnergyRegularizer, OrthogonalityRegularizer
from hypersphere.util.random_numbers import PROJECTIONS, normals
from tests.regularize.networks import network


def test_is_the_weighted_sum_over_layers_of_mean_pair_energies():
    """eq:mhe_reg, spelt out with loops."""
    model = network()
    wanted = 0.0
    for groups in (
        [model["encoder"][0].weight.flatten(1)],
        model["encoder"][3].weight.flatten(1).chunk(2),
        [model["projector"][0].weight],
        [model["projector"][2].weight],
        [model["predictor"].weight],
    ):
        pairs = [
            torch.acos(torch.cosine_similarity(a, b, dim=0)) ** -2
            for group in groups for i, a in enumerate(group) for j, b in enumerate(group) if i != j
        ]  # fmt: skip
        wanted = wanted + torch.stack(pairs).mean()
    found = EnergyRegularizer(model, s=2, metric="geodesic", weight=10.0)()
    torch.testing.assert_close(found, 10 * wanted)
    parameters = [p for p in model.parameters() if p.ndim > 1]
    for a, b in zip(torch.autograd.grad(found, parameters), torch.autograd.grad(10 * wanted, parameters), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"where": 3}, "where must be names, patterns, modules, their classes or a function .*, got 3"),
        ({"where": ["projector", None]}, "where must be .*, got None"),
        ({"where": int}, "where must be .*int"),
        ({"s": "2"}, "s must be a number, got str"),
        ({"weight": None}, "weight must be a number, got NoneType"),
        ({"model": "projector"}, "model must be a torch.nn.Module, got str"),
    ],
)
def test_wrong_types_are_named(options, message):
    with pytest.raises(TypeError, match=message):
        EnergyRegularizer(**{"model": network(), **options})


def test_can_be_attached_to_the_model_it_watches():
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4))
    before = model.state_dict().keys()
    model.regularizer = EnergyRegularizer(model)
    assert model.regularizer.state_dict() == {}
    assert model.state_dict().keys() == before
    assert len(list(model.parameters())) == 4
    clone = copy.deepcopy(model)
    with torch.no_grad():
        clone[0].weight.mul_(torch.randn(5, 6))
    assert clone.regularizer() != model.regularizer()  # the copy watches the copy
    assert clone.regularizer() == EnergyRegularizer(clone)()


def test_lowers_the_energy_of_a_model_trained_with_it():
    model = nn.Linear(3, 12, bias=False)
    with torch.no_grad():
        model.weight.add_(1)  # neurons crowded around (1, 1, 1)
    regularizer = EnergyRegularizer(model, s=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    before = regularizer().item()
    for _ in range(300):
        optimizer.zero_grad()
        regularizer().backward()
        optimizer.step()
    assert before > 1.2
    assert regularizer().item() < 0.78  # the minimum for 12 points is 49.165 / 66 = 0.745


def matrices(regularizer, d):
    """The projections that a compressive regularizer keeps for neurons of d weights, each d × k."""
    columns = normals(
        regularizer.projections * regularizer.dimensions, torch.arange(d), seed=5, epoch=d, stream=PROJECTIONS
    )
    return columns.split(regularizer.dimensions, dim=1)


@pytest.mark.parametrize("half_space", [False, True])
@pytest.mark.parametrize("metric", ["euclidean", "geodesic"])
def test_the_compressive_energy_is_the_mean_over_random_subspaces(metric, half_space):
    model = network().double()
    regularizer = EnergyRegularizer(
        model, 2, metric, weight=3.0, half_space=half_space, dimensions=4, projections=3, seed=5
    )
    wanted = {}
    for name, groups in (
        ("encoder.0", [model["encoder"][0].weight.flatten(1)]),
        ("encoder.3", model["encoder"][3].weight.flatten(1).chunk(2)),
        ("projector.0", [model["projector"][0].weight]),
        ("projector.2", [model["projector"][2].weight]),
        ("predictor", [model["predictor"].weight]),
    ):
        seen = groups
        if groups[0].shape[1] > 4:
            seen = [w @ p.double() for w in groups for p in matrices(regularizer, groups[0].shape[1])]
        wanted[name] = sum(hs.hyperspherical_energy(w, 2, metric, half_space) for w in seen) / len(seen)
    torch.testing.assert_close(regularizer.per_layer(), wanted)
    found, total = regularizer(), 3 * sum(wanted.values())
    parameters = [p for p in model.parameters() if p.ndim > 1]
    for a, b in zip(torch.autograd.grad(found, parameters), torch.autograd.grad(total, parameters), strict=True):
        torch.testing.assert_close(a, b)


def test_projections_are_normal_and_nearly_keep_angles():
    drawn = normals(41, torch.arange(999), seed=2).double()
    assert drawn.mean().abs() < 0.02
    assert (drawn.var(0) - 1).abs().max() < 0.2
    assert (torch.corrcoef(drawn.T) - torch.eye(41)).abs().max() < 0.2
    assert (drawn.pow(4).mean() - 3).abs() < 0.15
    layer = nn.Linear(600, 8)
    compressed = EnergyRegularizer(layer, dimensions=400, projections=4)()
    torch.testing.assert_close(compressed, EnergyRegularizer(layer)(), rtol=0.03, atol=0)


def test_projections_are_those_of_the_seed_and_kept():
    layer = nn.Linear(9, 6)
    one, again, other = (EnergyRegularizer(layer, dimensions=3, seed=seed) for seed in (1, 1, 2))
    assert one() == one() == again()
    assert one() != other()
    assert one.state_dict() == {}
    layer.double()  # after the projections were drawn
    torch.testing.assert_close(one(), EnergyRegularizer(layer, dimensions=3, seed=1)())


def test_it_says_what_it_is():
    assert "dimensions=4, projections=20" in repr(EnergyRegularizer(network(), dimensions=4))
    assert "dimensions" not in repr(EnergyRegularizer(network()))


@pytest.mark.parametrize(
    "make", [lambda m: EnergyRegularizer(m, dimensions=4), lambda m: OrthogonalityRegularizer(m, "srip")]
)
def test_a_first_look_without_gradients_leaves_them_to_later_ones(make):
    layer = nn.Linear(64, 8)
    regularizer = make(layer)
    with torch.inference_mode():
        before = regularizer()
    regularizer().backward()
    assert layer.weight.grad.norm() > 0
    torch.testing.assert_close(regularizer(), before.clone())
