"""Encoders of any kind in a run: transformers with their recipes, and modules that are passed as objects."""

import copy

import pytest
import torch
from torch import nn

import hypersphere as hs
from hypersphere.cli import main
from hypersphere.errors import UserError
from hypersphere.optim import build_optimizer
from hypersphere.runs.build import build_method
from hypersphere.runs.recipes import recipe_for

IMAGES = torch.randint(0, 256, (128, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
SMALL = {"epochs": 1, "batch": 64, "hidden": 16, "projection": 8, "knn_every": 0, "device": "cpu", "progress": False}


def network():
    torch.manual_seed(1)
    convolution = nn.Conv2d(3, 8, 3, stride=2)
    return nn.Sequential(convolution, nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def test_a_transformer_has_the_recipe_published_for_it():
    dino = recipe_for("dino", "cifar10", encoder="timm/test_vit")
    assert (dino.optimizer, dino.lr, dino.weight_decay, dino.weight_decay_end) == ("adamw", 5e-4, 0.04, 0.4)
    assert (dino.clip, dino.crop_min, dino.small_area, dino.freeze_patches) == (3.0, 0.4, (0.05, 0.4), False)
    for method in ("byol", "simclr-mhe", "moco", "swav"):
        config = recipe_for(method, "cifar10", encoder="torchvision/vit_b_16")
        assert (config.optimizer, config.lr, config.weight_decay) == ("adamw", 1.5e-4, 0.1)
        assert config.freeze_patches
        assert config.warmup is None
    chosen = recipe_for("byol", "cifar10", encoder="timm/test_vit", lr=1e-3, optimizer="sgd", init="pretrained")
    assert (chosen.lr, chosen.optimizer, chosen.freeze_patches) == (1e-3, "sgd", False)
    assert not recipe_for("byol", "cifar10", encoder="timm/pvt_v2_b0").freeze_patches


@pytest.mark.parametrize("encoder", ["torchvision/resnet18", "torchvision/mobilenet_v3_small", "timm/convnext_atto"])
def test_a_convolutional_encoder_keeps_its_recipe(encoder):
    config = recipe_for("dino", "cifar10", encoder=encoder)
    assert config == hs.config.recipe("dino", "cifar10", encoder=encoder)


class WithoutRecipes(hs.methods.Method):
    recipes = {"default": {"optimizer": "sgd", "lr": 0.5}}  # noqa: RUF012

    def __init__(self, encoder, features):
        super().__init__()
        self.encoder = encoder

    def forward(self, batch): ...


def test_a_method_that_chooses_its_optimizer_keeps_it():
    config = recipe_for(hs.methods.name_of(WithoutRecipes), "cifar10", encoder="timm/test_vit")
    assert (config.optimizer, config.lr) == ("sgd", 0.5)


@pytest.mark.parametrize("method", ["dino", "infomin"])
def test_a_vit_is_trained_on_crops_and_patches_of_other_sizes(method, tmp_path, capsys):
    options = {"dino": {"prototypes": 32, "small_crops": 1}, "infomin": {"queue": 64}}[method]
    run = hs.pretrain(method, data=IMAGES, encoder="timm/test_vit", size=32, out=tmp_path / "run", **SMALL, **options)
    assert "recipe for transformers: optimizer adamw" in capsys.readouterr().err
    projection = run.encoder.patch_embed.proj
    begun = build_method(run.config, 3, begin=True).encoder
    assert run.step == 2
    assert projection.weight.requires_grad == (method == "dino")
    exported = hs.load(hs.export(run, tmp_path / "exported"), "cpu")
    torch.testing.assert_close(exported.encode(IMAGES[:3]), run.encode(IMAGES[:3]), rtol=1e-4, atol=1e-5)
    assert begun.pos_embed.shape == run.encoder.pos_embed.shape == (1, 5, 64)


def test_frozen_patches_need_patches():
    with pytest.raises(UserError, match=r"^`freeze_patches` needs an encoder that cuts images into patches"):
        build_method(hs.config.recipe("byol", "cifar10", freeze_patches=True), 3)


@pytest.mark.parametrize("name", ["lars", "sgd", "adamw"])
def test_gradients_are_clipped_one_by_one(name):
    """As torch clips each weight by itself."""
    torch.manual_seed(0)
    ours = [nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(5)), nn.Parameter(torch.randn(2, 2))]
    theirs = copy.deepcopy(ours)
    options = {"weight_decay": 0.1, "momentum": 0.9, "trust": 0.001}
    clipping = build_optimizer(name, [{"params": ours}], **options, clip=0.7)
    plain = build_optimizer(name, [{"params": theirs}], **options)
    for scale in (0.1, 5.0):
        for one, other in zip(ours[:2], theirs[:2], strict=True):  # the last has no gradient
            one.grad = scale * torch.randn(one.shape)
            other.grad = one.grad.clone()
            torch.nn.utils.clip_grad_norm_([other], 0.7)
        for optimizer in (clipping, plain):
            optimizer.param_groups[0]["lr"] = 0.3
            optimizer.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_module_is_trained_as_a_copy(tmp_path):
    net = network()
    before = copy.deepcopy(net.state_dict())
    run = hs.pretrain("byol", data=IMAGES, encoder=net, out=tmp_path / "run", **SMALL)
    again = hs.pretrain("byol", data=IMAGES, encoder=net, out=tmp_path / "again", **SMALL)
    assert all(torch.equal(net.state_dict()[name], tensor) for name, tensor in before.items())
    assert not hasattr(net, "num_features")
    assert run.encoder.num_features == 8
    torch.testing.assert_close(run.encode(IMAGES[:4]), again.encode(IMAGES[:4]))
    assert not torch.equal(run.encoder[0].weight, net[0].weight)
    assert run.config.hash == again.config.hash


def test_a_run_of_a_module_is_loaded_with_one_like_it(tmp_path, capsys):
    run = hs.pretrain("byol", data=IMAGES, encoder=network(), out=tmp_path / "run", **SMALL)
    assert "hs.load_run(RUN, encoder=network)" in capsys.readouterr().err
    exported, features = hs.export(run, tmp_path / "exported"), run.encode(IMAGES[:4])
    name = run.config.encoder
    del run
    for load in (lambda: hs.load_run(tmp_path / "run", "cpu"), lambda: hs.load(exported)):
        with pytest.raises(UserError, match=f"^`encoder` {name} was an object in memory: pass a network"):
            load()
    assert main(["evaluate", str(tmp_path / "run"), "--probes", "knn"]) == 2
    assert f"--encoder {name} was an object in memory" in capsys.readouterr().err.replace("`encoder`", "--encoder")
    new = network()
    torch.nn.init.ones_(new[0].weight)
    torch.testing.assert_close(hs.load_run(tmp_path / "run", "cpu", encoder=new).encode(IMAGES[:4]), features)
    torch.testing.assert_close(hs.load(exported, "cpu", encoder=new).encode(IMAGES[:4]), features)
    with pytest.raises(UserError, match=rf"has the encoder {name}, not the `encoder` given \(in-memory-Flatten-"):
        hs.load_run(tmp_path / "run", "cpu", encoder=nn.Flatten())


def test_a_run_of_a_module_goes_on_with_one_like_it(tmp_path, monkeypatch):
    monkeypatch.setattr("hypersphere.runs.training.remove_previous", lambda *given: None)
    options = {**SMALL, "save_every": 1}
    whole = hs.pretrain("byol", data=IMAGES, encoder=network(), out=tmp_path / "whole", **options)
    part = tmp_path / "part"
    part.mkdir()
    state = (tmp_path / "whole/checkpoint.previous.pt").read_bytes()  # of the first of two steps
    (part / "checkpoint.pt").write_bytes(state)
    (part / "run.json").write_bytes((tmp_path / "whole/run.json").read_bytes())
    other = network()
    torch.nn.init.ones_(other[0].weight)  # the checkpoint has the weights
    run = hs.pretrain(resume=part, data=IMAGES, encoder=other, progress=False)
    assert run.step == 2
    torch.testing.assert_close(run.encode(IMAGES[:4]), whole.encode(IMAGES[:4]))
    with pytest.raises(UserError, match=r"cannot resume .*: its encoder is 'in-memory-Sequential"):
        hs.pretrain(resume=part, data=IMAGES, encoder=nn.Flatten(), progress=False)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (nn.Flatten(2), r"must return features of shape \(images, width\), got the shape \(1, 3, 1024\)"),
        (nn.Conv2d(1, 8, 3), r"does not accept 3 × 32 × 32 images"),
        (nn.Sequential(nn.LazyConv2d(8, 3), nn.Flatten()), "^`encoder` Sequential has lazy layers, .*: pass a batch"),
        (lambda: network(), "must be a name, or a function or class at the top level of a module, got function"),
    ],
)
def test_a_module_that_cannot_be_used_is_told_in_a_line(encoder, message, tmp_path):
    with pytest.raises(UserError, match=message):
        hs.pretrain("byol", data=IMAGES, encoder=encoder, out=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()


def test_what_an_encoder_does_not_have_is_told(tmp_path, capsys):
    hs.pretrain("byol", data=IMAGES, encoder=network(), stem="imagenet", out=tmp_path / "run", **SMALL)
    told = "ignored option stem: torchvision/resnet18 and torchvision/resnet50 have it, in-memory-Sequential-"
    assert told in capsys.readouterr().err
    with pytest.raises(UserError, match=r"does not accept .*: pass `small_crops` 0, or choose an encoder that accepts"):
        hs.pretrain("dino", data=IMAGES, encoder="timm/cait_xxs24_224", size=32, small_crops=1, prototypes=8, **SMALL)
