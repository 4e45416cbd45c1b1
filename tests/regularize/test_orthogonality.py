"""Orthogonality, and what all regularizers of weights share."""

import copy

import pytest
import torch
from torch import nn

import hypersphere as hs
from hypersphere.regularize import EnergyRegularizer, OrthogonalityRegularizer
from tests.regularize.networks import network


def orthogonality(w, kind):
    """By torch.linalg: of the Gram matrix of neurons, or of weights if they are fewer."""
    gram = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    gap = gram - torch.eye(len(gram), dtype=w.dtype)
    return torch.linalg.matrix_norm(gap, "fro") ** 2 if kind == "soft" else torch.linalg.matrix_norm(gap, 2)


@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize("kind", ["soft", "srip"])
def test_orthogonality_is_the_norm_of_what_the_gram_matrix_has_beyond_the_identity(kind, scale):
    model = network().double()
    for parameter in model.parameters():
        parameter.data *= scale
    regularizer = hs.OrthogonalityRegularizer(model, kind, weight=3.0, iterations=1000)
    one, two = (orthogonality(w, kind) for w in model["encoder"][3].weight.flatten(1).chunk(2))
    wanted = {
        "encoder.0": orthogonality(model["encoder"][0].weight.flatten(1), kind),
        "encoder.3": (one + two) / 2,
        **{f"projector.{i}": orthogonality(model["projector"][i].weight, kind) for i in (0, 2)},
        "predictor": orthogonality(model["predictor"].weight, kind),
    }
    torch.testing.assert_close(regularizer.per_layer(), wanted, rtol=1e-5, atol=0)
    found, total = regularizer(), 3 * sum(wanted.values())
    torch.testing.assert_close(found, total)
    parameters = [p for p in model.parameters() if p.ndim > 1]
    for a, b in zip(torch.autograd.grad(found, parameters), torch.autograd.grad(total, parameters), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4 * b.abs().max().item())


def linear(weight):
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False).to(weight.dtype)
    layer.weight.data = weight.clone()
    return layer


def test_either_gram_matrix_has_the_same_soft_gradient():
    tall = torch.randn(7, 3, dtype=torch.float64)
    layer = linear(tall)
    value = OrthogonalityRegularizer(layer)()
    value.backward()
    w = tall.requires_grad_()
    of_neurons = (w @ w.T - torch.eye(7)).square().sum()
    of_neurons.backward()
    torch.testing.assert_close(value + 4, of_neurons)
    torch.testing.assert_close(layer.weight.grad, w.grad)


@pytest.mark.parametrize("kind", ["soft", "srip"])
def test_orthonormal_neurons_have_nothing_to_mend_and_zero_ones_no_gradient(kind):
    for weight in (torch.eye(3, 5), torch.eye(5, 3)):
        layer = linear(weight)
        value = OrthogonalityRegularizer(layer, kind)()
        value.backward()
        assert value == 0
        assert (layer.weight.grad == 0).all()
    weight = torch.randn(4, 6)
    weight[1] = 0
    layer = linear(weight)
    OrthogonalityRegularizer(layer, kind)().backward()
    assert layer.weight.grad.isfinite().all()
    assert layer.weight.grad[1].abs().max() <= (0 if kind == "soft" else 1e-6)
    assert layer.weight.grad[0].abs().sum() > 0
    layer = linear(torch.zeros(4, 6))
    value = OrthogonalityRegularizer(layer, kind)()
    value.backward()
    assert value.item() == pytest.approx(4 if kind == "soft" else 1)
    assert (layer.weight.grad == 0).all()


def test_srip_of_eigenvalues_of_either_sign():
    """λ = ±0.6: the power method ends in a mixture of both eigenvectors, and ‖Av‖ is still 0.6."""
    layer = linear(torch.diag(torch.tensor([1.6, 1.0, 0.4]).sqrt()))
    assert OrthogonalityRegularizer(layer, "srip")().item() == pytest.approx(0.6, rel=1e-4)


def test_few_power_iterations_find_less():
    layer = linear(torch.randn(40, 60) / 8)
    found = [OrthogonalityRegularizer(layer, "srip", iterations=i)() for i in (1, 3, 10, 300)]
    assert found == sorted(found)
    torch.testing.assert_close(found[-1], orthogonality(layer.weight, "srip"), rtol=1e-3, atol=0)
    assert found[2] > 0.9 * found[-1]


@pytest.mark.parametrize("kind", ["soft", "srip"])
def test_lowering_orthogonality_makes_neurons_orthonormal(kind):
    layer = nn.Linear(8, 5, bias=False)
    regularizer = OrthogonalityRegularizer(layer, kind)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.05)
    for step in range(400):
        for group in optimizer.param_groups:
            group["lr"] = 0.05 * (1 - step / 400)
        optimizer.zero_grad()
        regularizer().backward()
        optimizer.step()
    assert (layer.weight @ layer.weight.T - torch.eye(5)).abs().max() < 0.02


REGULARIZERS = {
    "compressive": lambda model, **options: EnergyRegularizer(model, dimensions=3, projections=2, **options),
    "soft": lambda model, **options: OrthogonalityRegularizer(model, "soft", **options),
    "srip": lambda model, **options: OrthogonalityRegularizer(model, "srip", iterations=2, **options),
}


@pytest.mark.parametrize("kind", REGULARIZERS)
def test_others_share_the_choice_of_layers_and_register_nothing(kind):
    model = network()
    regularizer = REGULARIZERS[kind](model, where=["projector", "predictor"])
    assert regularizer.per_layer().keys() == {"projector.0", "projector.2", "predictor"}
    before = model.state_dict().keys()
    model.regularizer = regularizer
    regularizer()
    assert regularizer.state_dict() == {}
    assert model.state_dict().keys() == before
    clone = copy.deepcopy(model)
    with torch.no_grad():
        clone["predictor"].weight.mul_(torch.randn(5, 4))
    assert clone.regularizer() != regularizer()
    with pytest.raises(ValueError, match=r"'projektor'.*encoder, projector, predictor"):
        REGULARIZERS[kind](model, where="projektor")
    with pytest.raises(ValueError, match="weight must be finite"):
        REGULARIZERS[kind](model, weight=-1.0)


@pytest.mark.parametrize("kind", REGULARIZERS)
def test_others_under_autocast_in_half_precision_and_compiled(kind):
    model = nn.Linear(6, 5)
    regularizer = REGULARIZERS[kind](model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = regularizer()
    assert inside == regularizer()
    half = copy.deepcopy(model).half()
    found = REGULARIZERS[kind](half)()
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, REGULARIZERS[kind](copy.deepcopy(half).float())())
    found.backward()
    assert all(p.grad.isfinite().all() for p in half.parameters() if p.ndim > 1)
    fresh = REGULARIZERS[kind](model)
    compiled = torch.compile(fresh, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(), inside)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda model: OrthogonalityRegularizer(model, "hard"), "kind must be 'soft' or 'srip', got 'hard'"),
        (lambda model: OrthogonalityRegularizer(model, "srip", iterations=0), "iterations must be"),
        (lambda model: EnergyRegularizer(model, dimensions=0), "dimensions must be"),
        (lambda model: EnergyRegularizer(model, dimensions=3, projections=1.5), "projections must be"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make(network())
