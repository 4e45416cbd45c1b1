"""Which layers of a model count, by what they are and by `where`."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.nn.utils.parametrize import register_parametrization
from torch.nn.utils.prune import l1_unstructured

import hypersphere as hs
from hypersphere.regularize import EnergyRegularizer, OrthogonalityRegularizer, WeightRegularizer, groups_of
from hypersphere.regularize.layers import layers_of
from tests.regularize.networks import network


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
        ValueError, match=r"no Linear, Conv or MultiheadAttention layer .* in the given Linear; .*: encoder, projector"
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
        assert [layer.module for layer in found._layers] == [layer.module for layer in wanted._layers]
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
    assert list(EnergyRegularizer(layer).layers) == ["out_proj"]


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
        with pytest.raises(ValueError, match=r"all layers in .* are frozen: there is nothing to regularize"):
            EnergyRegularizer(model, where=where)
    with pytest.raises(ValueError, match=r"'projektor'.*: encoder, projector, predictor$"):
        EnergyRegularizer(model, where="projektor")


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
    with pytest.raises(ValueError, match=r"layer '1' is lazy, .* run a batch through the model first"):
        EnergyRegularizer(model)


def test_a_function_chooses_by_the_name_inside_a_wrapper():
    model = network()
    seen: list[str] = []
    EnergyRegularizer(nn.DataParallel(model), where=lambda name, module: seen.append(name) or True)
    assert set(seen) == {"encoder.0", "encoder.3", "projector.0", "projector.2", "predictor"}
    wrapped = EnergyRegularizer(nn.DataParallel(model), where="module.projector")
    assert wrapped.per_layer().keys() == {"projector.0", "projector.2"}


def test_a_part_may_be_wrapped():
    model = nn.ModuleDict({"backbone": nn.DataParallel(nn.Sequential(nn.Linear(4, 4))), "head": nn.Linear(4, 4)})
    for where in ("backbone.0", "backbone.module.0", "backbone", "backbone.module"):
        assert list(EnergyRegularizer(model, where=where).per_layer()) == ["backbone.0"]
    model["backbone"].register_module("0", nn.Linear(4, 4))  # beside what it is around
    assert EnergyRegularizer(model).per_layer().keys() == {"backbone.module.0", "backbone.0", "head"}


def test_a_derivative_by_something_else_is_none_of_its_business():
    model = nn.Linear(4, 4)
    regularizer = OrthogonalityRegularizer(model)
    found = torch.func.grad(lambda x: model(x).square().sum() + regularizer())(torch.ones(2, 4))
    assert found.isfinite().all()


def test_a_layer_alone_has_no_parts_to_name():
    with pytest.raises(ValueError, match=r"with several neurons in 'nosuch'; for another matrix of weights use `also`"):
        EnergyRegularizer(nn.Linear(3, 3), where="nosuch")


def test_a_part_named_module_is_no_wrapper():
    model = nn.ModuleDict({"module": nn.ModuleDict({"fc": nn.Linear(4, 4)}), "fc": nn.Linear(4, 4)})
    for wrapped in (model, nn.DataParallel(model), torch.compile(model)):
        regularizer = EnergyRegularizer(wrapped)
        each = regularizer.per_layer()
        assert each.keys() == {"module.fc", "fc"}
        torch.testing.assert_close(sum(each.values()), regularizer())


@pytest.mark.parametrize(
    ("where", "meant"),
    [("module", ["module"]), ("m*", ["mlp", "module"]), ("mlp", ["mlp"]), ("module.mlp", None), ("*.encoder", None)],
)
def test_nothing_is_put_before_names_where_there_is_no_wrapper(where, meant):
    model = nn.ModuleDict({name: nn.Linear(4, 4) for name in ("encoder", "mlp", "module")})
    if meant is None:
        with pytest.raises(ValueError, match="its parts with such layers are: encoder, mlp, module"):
            EnergyRegularizer(model, where=where)
        meant = [where.rpartition(".")[2]]
    else:
        assert list(EnergyRegularizer(model, where=where).per_layer()) == meant
    wrapped = EnergyRegularizer(nn.DataParallel(model), where=where)
    assert set(wrapped.per_layer()) >= set(meant)


def test_a_parameter_beside_the_weight_says_nothing_of_it():
    """As the scales of quantized layers, which are not learnt."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    for layer in model:
        layer.register_parameter("weight_scale", nn.Parameter(torch.ones(4), requires_grad=False))
    assert list(EnergyRegularizer(model).per_layer()) == ["0", "1"]
    model[1].weight = model[0].weight
    assert list(EnergyRegularizer(model).per_layer()) == ["0"]


@pytest.mark.parametrize(
    "hook",
    [torch.nn.utils.spectral_norm, torch.nn.utils.weight_norm, lambda layer: l1_unstructured(layer, "weight", 2)],
)
@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
def test_weights_that_a_hook_makes_are_refused(hook):
    """Until the next forward pass they are those of the last one, without gradient or with a freed one."""
    model = nn.Sequential(hook(nn.Linear(8, 6)), nn.ReLU(), nn.Linear(6, 5))
    for where in (None, "0"):
        with pytest.raises(ValueError, match="layer '0' has a weight that is not a matrix parameter"):
            EnergyRegularizer(model, where=where)
    assert list(EnergyRegularizer(model, where="2").per_layer()) == ["2"]
    model[0].requires_grad_(False)
    assert list(EnergyRegularizer(model).per_layer()) == ["2"]


def test_a_frozen_weight_with_a_bias_that_learns_is_frozen():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5))
    model[0].weight.requires_grad_(False)
    assert list(EnergyRegularizer(model).per_layer()) == ["1"]


class Rows(WeightRegularizer):
    """How many neurons there are; and where it is asked."""

    def measure(self, matrices):
        self.asked = [*getattr(self, "asked", []), {w.device.type for w in matrices}]
        return torch.tensor([float(len(w)) for w in matrices])


def test_layers_may_lie_on_several_devices():
    model = nn.Sequential(
        *(nn.Linear(n, n + 1, device=d) for n, d in zip(range(3, 7), ["cpu", "meta"] * 2, strict=True))
    )
    rows = Rows(model)
    with torch.no_grad():
        assert rows.per_layer() == {"0": 4, "1": 5, "2": 6, "3": 7}
    assert sorted(map(list, rows.asked)) == [["cpu"], ["meta"]]  # what lies together is measured together


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize(
    "make", [EnergyRegularizer, partial(EnergyRegularizer, dimensions=4), OrthogonalityRegularizer]
)
def test_a_model_parallel_network_counts_as_it_does_in_one_place(make):
    whole = nn.Sequential(*(nn.Linear(6, 6) for _ in range(4)))
    shared = copy.deepcopy(whole)
    shared[1].cuda(), shared[3].cuda()
    values = [make(model)() for model in (whole, shared)]
    assert torch.allclose(*values, rtol=1e-4)
    for value in values:
        value.backward()
    for a, b in zip(whole.parameters(), shared.parameters(), strict=True):
        if a.ndim > 1:  # a GPU's slopes have 16 bits
            torch.testing.assert_close(b.grad.cpu(), a.grad, rtol=1e-3, atol=1e-3 * a.grad.abs().max().item())


def test_looking_for_layers_leaves_a_spectral_norm_as_it_is():
    model = nn.Sequential(nn.Linear(8, 12), nn.Linear(12, 6))
    state = parametrizations.spectral_norm(model[0]).parametrizations.weight[0]._u
    before = state.clone()
    EnergyRegularizer(model)
    assert torch.equal(state, before)


def test_layers_made_of_buffers_are_not_tied():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    for layer in model:
        kept = layer.weight.detach()
        del layer.weight
        layer.register_buffer("weight", kept)
        register_parametrization(layer, "weight", nn.Identity())
    assert [name for name, _ in layers_of(model)] == ["0", "1"]
