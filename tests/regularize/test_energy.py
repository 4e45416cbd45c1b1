"""The energy of the neurons of a model: which layers, which neurons, what value."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import hypersphere as hs
from hypersphere.draws import PROJECTIONS, normals
from hypersphere.regularize import EnergyRegularizer, OrthogonalityRegularizer, groups_of
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
    ("where", "names"),
    [
        ("projector", {"projector.0", "projector.2"}),
        (["projector", "predictor"], {"projector.0", "projector.2", "predictor"}),
        ("encoder.*", {"encoder.0", "encoder.3"}),
        ("*.0", {"encoder.0", "projector.0"}),
        (lambda name, module: isinstance(module, nn.Conv2d), {"encoder.0", "encoder.3"}),
        (None, {"encoder.0", "encoder.3", "projector.0", "projector.2", "predictor"}),
    ],
)
def test_where(where, names):
    assert EnergyRegularizer(network(), where=where).per_layer().keys() == names


def test_where_may_be_modules():
    model = network()
    assert EnergyRegularizer(model, where=model["projector"]).per_layer().keys() == {"projector.0", "projector.2"}
    two = EnergyRegularizer(model, where=iter([model["projector"][2], "predictor"]))
    assert two.per_layer().keys() == {"projector.2", "predictor"}
    with pytest.raises(
        ValueError, match=r"no Linear, Conv or MultiheadAttention layer .* in the Linear given; .*: encoder, projector"
    ):
        EnergyRegularizer(model, where=nn.Linear(3, 3))


class Wrapper(nn.Module):
    """As DistributedDataParallel holds a model."""

    def __init__(self, model):
        super().__init__()
        self.module = model


@pytest.mark.parametrize(
    "wrap", [torch.compile, Wrapper, lambda m: torch.compile(Wrapper(m)), lambda m: Wrapper(torch.compile(m))]
)
def test_names_are_those_inside_a_wrapper(wrap):
    model = network()
    for where in ("projector", "pro*", "*.2"):
        wanted = EnergyRegularizer(model, where=where)
        found = EnergyRegularizer(wrap(model), where=where)
        assert [layer for _, layer in found._layers] == [layer for _, layer in wanted._layers]
    with pytest.raises(ValueError, match="parts with such layers are: encoder, projector, predictor"):
        EnergyRegularizer(wrap(model), where="target")


def test_nothing_to_regularize_is_an_error():
    with pytest.raises(ValueError, match=r"'projektor'.*encoder, projector, predictor"):
        EnergyRegularizer(network(), where="projektor")
    with pytest.raises(ValueError, match=r"'projektor'"):
        EnergyRegularizer(network(), where=["projector", "projektor"])
    with pytest.raises(ValueError, match="no Linear, Conv or MultiheadAttention layer"):
        EnergyRegularizer(nn.Sequential(nn.ReLU()))
    with pytest.raises(ValueError, match="weight"):
        EnergyRegularizer(network(), weight=-1.0)
    with pytest.raises(ValueError, match="where is empty"):
        EnergyRegularizer(network(), where=[])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"where": 3}, "where must be names, patterns, modules, their classes or a function .*, not 3"),
        ({"where": ["projector", None]}, "where must be .*, not None"),
        ({"where": int}, "where must be .*int"),
        ({"s": "2"}, "s must be a number, not a str"),
        ({"weight": None}, "weight must be a number, not a NoneType"),
        ({"model": "projector"}, "model must be a torch.nn.Module, not a str"),
    ],
)
def test_wrong_types_are_named(options, message):
    with pytest.raises(TypeError, match=message):
        EnergyRegularizer(**{"model": network(), **options})


@pytest.mark.parametrize(
    ("layer", "groups", "count", "size"),
    [
        (nn.Linear(7, 5), 1, 5, 7),
        (nn.Conv1d(4, 6, 3), 1, 6, 12),
        (nn.Conv2d(4, 6, 3), 1, 6, 36),
        (nn.Conv3d(4, 6, 2), 1, 6, 32),
        (nn.Conv2d(4, 6, 3, groups=2), 2, 3, 18),
        (nn.ConvTranspose1d(4, 6, 3), 1, 6, 12),
        (nn.ConvTranspose2d(4, 6, 3, groups=2), 2, 3, 18),
        (nn.ConvTranspose3d(4, 6, 2), 1, 6, 32),
    ],
)
def test_neurons_are_what_makes_one_output(layer, groups, count, size):
    """Zeroing a neuron silences just its own output channel."""
    rows = torch.stack([group.flatten(1) for group in groups_of(layer)])
    assert rows.shape == (groups, count, size)
    keep = torch.ones(groups, count, 1)
    keep[-1, 1] = 0
    silenced = copy.deepcopy(layer)
    inputs = torch.randn(2, 7) if isinstance(layer, nn.Linear) else torch.randn(2, 4, *[5] * (layer.weight.ndim - 2))
    with torch.no_grad():
        _write_back(silenced, rows * keep)
        changed = (silenced(inputs) - layer(inputs)).abs().transpose(0, 1).flatten(1).sum(1) > 0
    assert changed.nonzero().flatten().tolist() == [(groups - 1) * count + 1]


def _write_back(layer, rows):
    weight = layer.weight
    if isinstance(layer, nn.Linear):
        weight.copy_(rows[0])
    elif "Transpose" in type(layer).__name__:
        kernel = weight.shape[2:]
        per_group = weight.shape[0] // layer.groups
        weight.copy_(rows.unflatten(2, (per_group, *kernel)).transpose(1, 2).flatten(0, 1))
    else:
        weight.copy_(rows.flatten(0, 1).view_as(weight))


def test_depthwise_convolutions_are_skipped():
    model = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 4, 1))
    assert EnergyRegularizer(model).per_layer().keys() == {"1"}


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


@pytest.mark.parametrize("widths", [{}, {"kdim": 5, "vdim": 7}])
def test_attention_is_its_three_maps_and_its_output(widths):
    """Packed into one weight, or, for inputs of several widths, apart."""
    layer = nn.MultiheadAttention(6, 2, **widths)
    maps = [layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight] if widths else layer.in_proj_weight.split(6)
    for kind, measure in (
        (EnergyRegularizer, hs.hyperspherical_energy),
        (OrthogonalityRegularizer, lambda w: (w.T @ w - torch.eye(w.shape[1])).square().sum()),
    ):
        regularizer = kind(nn.ModuleDict({"attention": layer, "last": nn.Linear(6, 3)}), where="attention")
        found = regularizer.per_layer()
        assert found.keys() == {"attention", "attention.out_proj"}
        wide = [w if len(w) >= w.shape[1] else w.T for w in maps]
        wanted = sum(measure(w if kind is EnergyRegularizer else v) for w, v in zip(maps, wide, strict=True)) / 3
        torch.testing.assert_close(found["attention"], wanted)
        layer.zero_grad()
        regularizer().backward()
        assert all(w.grad is not None for name, w in layer.named_parameters() if name.endswith("weight"))
    layer.requires_grad_(False)
    layer.out_proj.requires_grad_(True)
    assert [name for name, _ in EnergyRegularizer(layer)._layers] == ["out_proj"]


def test_parametrized_weights_are_read_as_they_act():
    layer = nn.Linear(6, 5)
    regularizer = EnergyRegularizer(layer)
    parametrizations.orthogonal(layer)
    assert regularizer().item() == pytest.approx(0.5, rel=1e-4)
    regularizer().backward()
    assert layer.parametrizations.weight.original.grad is not None


def test_tied_weights_count_once_and_those_frozen_later_without_gradient():
    a, b, c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
    b.weight = a.weight
    regularizer = EnergyRegularizer(nn.Sequential(a, b, c))
    c.requires_grad_(False)
    energy = regularizer()
    torch.testing.assert_close(energy, sum(hs.hyperspherical_energy(layer.weight) for layer in (a, c)))
    energy.backward()
    assert c.weight.grad is None
    wanted = torch.autograd.grad(hs.hyperspherical_energy(a.weight), a.weight)[0]
    torch.testing.assert_close(a.weight.grad, wanted)


@pytest.mark.parametrize("parametrized", [False, True])
def test_layers_frozen_before_are_left_out(parametrized):
    model = network()
    model["target"] = copy.deepcopy(model["projector"]).requires_grad_(False)
    if parametrized:
        parametrizations.orthogonal(model["target"][0])
        model["target"].requires_grad_(False)
    for where in (None, "*", ["projector", "*.0"]):
        with torch.no_grad():
            names = EnergyRegularizer(model, where=where).per_layer().keys()
        assert "projector.0" in names
        assert not any(name.startswith("target") for name in names)
    for where in ("target", ["projector", "target"], model["target"], lambda name, module: name.startswith("target")):
        with pytest.raises(ValueError, match=r"all Linear and Conv layers of .* are frozen"):
            EnergyRegularizer(model, where=where)
    with pytest.raises(ValueError, match=r"'projektor'.*: encoder, projector, predictor$"):
        EnergyRegularizer(model, where="projektor")


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


def test_neurons_of_one_weight_are_none():
    """They are 1 or −1 on a sphere of two points."""
    model = nn.Sequential(nn.Linear(1, 64), nn.SiLU(), nn.Linear(64, 8))
    assert list(EnergyRegularizer(model).per_layer()) == ["2"]
    assert list(EnergyRegularizer(nn.MultiheadAttention(4, 1, kdim=1, vdim=1)).per_layer()) == ["out_proj"]
    with pytest.raises(ValueError, match="has no Linear, Conv or"):
        EnergyRegularizer(model[0])


def test_layers_are_chosen_by_their_class():
    model = network()
    assert list(EnergyRegularizer(model, where=nn.Conv2d).per_layer()) == ["encoder.0", "encoder.3"]


def test_names_are_those_of_the_model_inside():
    model = network()
    assert EnergyRegularizer(torch.compile(model)).per_layer().keys() == EnergyRegularizer(model).per_layer().keys()


def test_lazy_layers_are_told():
    model = nn.Sequential(nn.Linear(3, 4), nn.LazyLinear(4))
    assert list(EnergyRegularizer(model, where="0").per_layer()) == ["0"]
    with pytest.raises(ValueError, match="run a batch through it first"):
        EnergyRegularizer(model)


def test_it_says_what_it_is():
    assert "dimensions=4, projections=20" in repr(EnergyRegularizer(network(), dimensions=4))
    assert "dimensions" not in repr(EnergyRegularizer(network()))
