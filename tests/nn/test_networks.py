import pytest
import torch
from torch import nn
from torchvision import models
from torchvision.models import resnet18, resnet50

from hypersphere.errors import UserError
from hypersphere.methods import BYOL
from hypersphere.nn import build_encoder, each_view, ema_update, features_of, make_target, mlp, separate_view_statistics
from hypersphere.nn.blocks import to_positions
from hypersphere.nn.libraries import build_model, pretrained_model
from hypersphere.nn.norm import BatchNorm1d, BatchNorm2d, Standardize, standardize_weights, together
from hypersphere.optim import rising


@pytest.mark.parametrize(("name", "theirs", "features"), [("resnet18", resnet18, 512), ("resnet50", resnet50, 2048)])
def test_imagenet_resnets_are_torchvisions(name, theirs, features):
    ours = build_encoder(f"torchvision/{name}", stem="imagenet").eval()
    reference = theirs(weights=None)
    reference.fc = nn.Identity()
    reference.load_state_dict(ours.state_dict())
    images = torch.randn(1, 3, 64, 64)
    assert features_of(ours) == features
    with torch.no_grad():
        assert torch.equal(ours(images), reference.eval()(images))


def test_cifar_stem_keeps_the_resolution():
    encoder = build_encoder("torchvision/resnet18", stem="cifar")
    sizes = {}
    for name in ("maxpool", "layer1", "layer4"):
        getattr(encoder, name).register_forward_hook(
            lambda m, i, o, name=name: sizes.update({name: tuple(o.shape[1:])})
        )
    encoder(torch.randn(2, 3, 32, 32))
    assert sizes == {"maxpool": (64, 32, 32), "layer1": (64, 32, 32), "layer4": (512, 4, 4)}
    assert encoder.conv1.weight.shape == (64, 3, 3, 3)


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
@pytest.mark.parametrize(
    ("name", "shape", "features"),
    [
        ("torchvision/resnet18", (3, 32, 32), 512),
        ("hypersphere/alexnet", (3, 32, 32), 4096),
        ("hypersphere/digits", (1, 8, 8), 128),
    ],
)
def test_every_encoder_with_every_normalization(name, shape, features, norm):
    encoder = build_encoder(name, channels=shape[0], stem="cifar", norm=norm)
    found = encoder(torch.randn(2, *shape))
    assert found.shape == (2, features) == (2, features_of(encoder))
    assert found.isfinite().all()
    kinds = {type(m) for m in encoder.modules()}
    assert (BatchNorm2d in kinds) == (norm == "batch")
    assert (nn.GroupNorm in kinds) == (norm == "group")
    assert any(isinstance(m, Standardize) for m in encoder.modules()) == (norm == "group")


def test_outputs_on_the_circle():
    encoder = build_encoder("hypersphere/alexnet", dimensions=2)
    assert encoder(torch.randn(2, 3, 32, 32)).shape == (2, 2)
    assert features_of(encoder) == 2


def test_standardizing_leaves_the_raw_filters_as_they_were():
    """What is learnt begins where it would without: neither too small nor too large for the learning rate."""
    layer = torch.nn.Conv2d(3, 8, 3)
    raw = layer.weight.detach().clone()
    standardize_weights(layer)
    assert torch.equal(layer.parametrizations.weight.original, raw)
    standardized = layer.weight.detach().clone()
    layer.weight = standardized  # by right_inverse
    torch.testing.assert_close(layer.weight, standardized)


def test_standardized_filters_have_mean_zero_and_norm_one():
    rows = Standardize()(3 + torch.randn(8, 4, 3, 3)).flatten(1)
    torch.testing.assert_close(rows.mean(1), torch.zeros(8), atol=1e-6, rtol=0)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(8), atol=0.02, rtol=0)


def test_unknown_names_are_answered_with_the_known():
    with pytest.raises(ValueError, match=r"resnet19.*did you mean .resnet18"):
        build_encoder("torchvision/resnet19")
    with pytest.raises(ValueError, match="batch, group, none"):
        mlp(3, 4, 5, norm="layer")  # type: ignore[arg-type]


def test_heads_are_linear_norm_relu_linear():
    head, x = mlp(6, 16, 4), torch.randn(3, 6)
    first, second, last = head
    wanted = last(nn.BatchNorm1d(16)(first(x)).relu())
    torch.testing.assert_close(head(x), wanted)
    assert isinstance(second.norm, BatchNorm1d)
    assert (first.bias is None, last.bias is None) == (False, True)
    assert not any(isinstance(m, nn.BatchNorm1d) for m in mlp(6, 16, 4, norm="none"))


def test_the_target_follows_parameters_and_keeps_its_own_statistics():
    online = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    target = make_target(online)
    assert all(torch.equal(a, b) for a, b in zip(online.parameters(), target.parameters(), strict=True))
    assert not any(p.requires_grad for p in target.parameters())
    before = target[0].weight.clone()
    with torch.no_grad():
        online[0].weight.add_(1)
    online(torch.randn(8, 3) + 5)
    ema_update(target, online, torch.tensor(0.9))
    torch.testing.assert_close(target[0].weight, 0.9 * before + 0.1 * online[0].weight)
    assert (target[1].running_mean == 0).all()
    target(torch.randn(8, 3))
    assert (target[1].running_mean != 0).any()
    ema_update(target, online, torch.tensor(1.0))
    torch.testing.assert_close(target[0].weight, 0.9 * before + 0.1 * online[0].weight)


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.BatchNorm2d])
def test_views_together_are_the_views_one_by_one(kind):
    """Outputs, gradients and running statistics, of a network whose BatchNorm layers are torch's own."""
    shape = (5, 4) if kind is nn.BatchNorm1d else (5, 4, 3, 3)
    one, all_ = nn.Sequential(kind(4)), nn.Sequential(kind(4))
    views = tuple(torch.randn(shape) * scale + scale for scale in (1, 3))
    assert separate_view_statistics(all_)
    wanted, found = each_view(one, views), together(all_, views)
    for a, b in zip(wanted, found, strict=True):
        torch.testing.assert_close(a, b)
    for outputs in (wanted, found):
        (outputs[0].square() * torch.arange(4.0).view(4, *[1] * (len(shape) - 2))).sum().backward()
    torch.testing.assert_close(one[0].weight.grad, all_[0].weight.grad)
    for name, value in one.state_dict().items():
        torch.testing.assert_close(value, all_.state_dict()[name])
    all_.eval()
    assert torch.equal(together(all_, views)[1], all_(views[1]))


def test_a_norm_of_unknown_kind_does_not_keep_views_apart():
    class Odd(nn.BatchNorm1d):
        def forward(self, x):
            return super().forward(x) + 1

    assert not separate_view_statistics(nn.Sequential(nn.BatchNorm1d(4), Odd(4)))
    assert separate_view_statistics(nn.Sequential(nn.BatchNorm1d(4), nn.GroupNorm(2, 4)))


def test_the_decay_goes_from_tau_to_its_end():
    start, middle, end = torch.tensor([0.0, 0.5, 1.0])
    assert [float(rising(0.9, at)) for at in (start, middle, end)] == pytest.approx([0.9, 0.95, 1.0])
    assert [float(rising(0.9, at, 0.96)) for at in (start, middle, end)] == pytest.approx([0.9, 0.93, 0.96])
    method = BYOL(nn.Linear(3, 4), 4, hidden=5, projection=2, tau=0.5, tau_end=0.5)
    before = method.target[0].weight.clone()
    with torch.no_grad():
        method.encoder.weight.add_(1)
    method.after_step(end)
    torch.testing.assert_close(method.target[0].weight, before + 0.5)


@pytest.mark.parametrize(("name", "features"), [("googlenet", 1024), ("inception_v3", 2048)])
def test_heads_that_learn_beside_are_left_out(name, features):
    encoder = build_encoder(f"torchvision/{name}").train()
    assert encoder(torch.randn(2, 3, 80, 80)).shape == (2, features) == (2, features_of(encoder))


def test_only_weights_that_were_asked_for_are_missed(monkeypatch):
    def fail(name, **options):
        raise RuntimeError("of another kind\nand more")

    monkeypatch.setattr(models, "get_model", fail)
    with pytest.raises(
        UserError, match=r"^could not download the weights of torchvision/resnet18 \(of another kind\)$"
    ):
        pretrained_model("torchvision/resnet18")
    with pytest.raises(RuntimeError, match="and more"):
        build_model("torchvision/resnet18")


def test_places_of_a_map_are_the_same_in_every_layout():
    x = torch.randn(2, 5, 3, 3)
    wanted = torch.stack([x[:, :, row, column] for row in range(3) for column in range(3)], dim=1)
    for laid in (x, x.permute(0, 2, 3, 1), wanted):
        assert torch.equal(to_positions(laid), wanted)
    assert torch.equal(to_positions(x[:, :, 0, 0]), wanted[:, :1])
    assert torch.equal(to_positions(x[:, :3]), wanted[:, :, :3])  # as many channels as rows: channels are first
