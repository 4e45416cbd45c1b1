"""Whole runs of the methods: every variant goes, and each learns on digits."""

import dataclasses
import re
import subprocess
import sys

import pytest
import torch
from torch import nn

from hypersphere.cli import main
from hypersphere.config import recipe
from hypersphere.data import load_data
from hypersphere.data.loader import center_view
from hypersphere.errors import UserError
from hypersphere.evaluate import extract
from hypersphere.methods import METHODS, Batch
from hypersphere.runs.build import build_method, regularizer_of, trainer_of, try_encoder, view_pipeline
from hypersphere.runs.machine import training_execution
from hypersphere.runs.pretraining import pretrain
from hypersphere.runs.run import initial_encoder, load_run, random_encoder
from hypersphere.views import POLICIES
from tests.networks import SMALL_ENCODER, those_of
from tests.pictures import risen

OURS = ("simclr", "simsiam", "moco", "infomin", "barlow", "vicreg", "supervised")
SMALL = {"device": "cpu", "knn_every": 0, "progress": False}


@pytest.mark.parametrize("variant", ["", "-uni", "-mhe", "-uni-mhe"])
@pytest.mark.parametrize("name", ["byol", *OURS])
def test_every_variant_takes_a_step(name, variant):
    config = recipe(name + variant, "digits", device="cpu", **those_of(name, hidden=32, projection=8))
    assert config.title == name + variant
    method = build_method(config, 1, 10).train()
    trainer = trainer_of(config, method, training_execution(config))
    data = Batch(tuple(torch.randn(2, 16, 1, 8, 8)), torch.arange(16), torch.arange(16) % 10)
    before = [weight.detach().clone() for weight in method.encoder.parameters()]
    terms = trainer.update([data], 0.01, 0.0)
    assert torch.isfinite(terms["loss"])
    assert ("uniformity" in terms) == ("-uni" in variant)
    assert ("regularizer" in terms) == ("-mhe" in variant)
    assert any(not torch.equal(old, new) for old, new in zip(before, method.encoder.parameters(), strict=True))


# epochs on digits, and by how much accuracy with one label a class must rise: seconds each
LEARNING = {
    "simclr": (4, 15),
    "simsiam": (7, 5),
    "moco": (6, 12),
    "infomin": (6, 10),
    "barlow": (4, 10),
    "vicreg": (4, 10),
    "supervised": (3, 25),
}


@pytest.mark.parametrize("name", OURS)
def test_a_method_learns_on_digits(name, tmp_path):
    epochs, wanted = LEARNING[name]
    options = {**SMALL, **those_of(name, hidden=256)}
    run = pretrain(name, "digits", epochs=epochs, warmup=1, out=tmp_path / "run", **options)
    assert risen(run) > wanted


def test_statistics_alone_are_no_learning(tmp_path):
    """What BatchNorm measures without any update of weights makes features better; a random encoder has it, too."""
    run = pretrain("simclr", "digits", epochs=4, lr=1e-9, hidden=256, out=tmp_path / "run", **SMALL)
    assert abs(risen(run)) < 2


def test_a_random_encoder_knows_the_statistics_of_its_images():
    config = recipe("simclr", "digits", device="cpu")
    encoder, pixels = random_encoder(config), load_data("digits", config.holdout)[0].pixels
    norm = next(layer for layer in encoder.modules() if isinstance(layer, nn.BatchNorm2d))
    seen = []
    norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].double()))
    extract(encoder, pixels, center_view(view_pipeline(config)))
    variance, mean = torch.var_mean(torch.cat(seen), (0, 2, 3))
    assert torch.allclose(norm.running_mean.double(), mean, rtol=1e-3, atol=1e-4)
    assert torch.allclose(norm.running_var.double(), variance, rtol=1e-2)
    for ours, drawn in zip(encoder.parameters(), initial_encoder(config).parameters(), strict=True):
        assert torch.equal(ours, drawn)


def test_a_supervised_run_is_loaded_with_its_classes(tmp_path):
    run = pretrain("supervised", "digits", encoder=SMALL_ENCODER, epochs=1, batch=256, out=tmp_path / "run", **SMALL)
    again = load_run(run.path, "cpu")
    assert again.method.classifier.weight.shape == (10, 32)
    assert torch.equal(again.method.classifier.weight, run.method.classifier.weight)
    assert pretrain(resume=run.path, progress=False).step == run.step


def test_supervised_needs_labels(tmp_path):
    from PIL import Image

    for number in range(40):
        pixels = torch.randint(0, 256, (32, 32, 3), dtype=torch.uint8).numpy()
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    with pytest.raises(UserError, match="labels of at least two classes, got 0"):
        pretrain("supervised", str(tmp_path), epochs=1, workers=0, out=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()


def test_energy_can_stand_where_the_predictor_stood(tmp_path):
    small = {"encoder": SMALL_ENCODER, "epochs": 1, "hidden": 32}
    run = pretrain("byol-mhe", "digits", **small, predictor=False, out=tmp_path / "run", **SMALL)
    assert "regularizer" in run.metrics[-1]
    assert run.config.hash != recipe("byol-mhe", "digits", **small).hash
    with pytest.raises(UserError, match="energy_layers"):
        regularizer_of(run.config.replace(energy_layers=("predictor",)), run.method)


def test_a_predictor_is_left_out_by_a_word(tmp_path):
    words = ["--data", "digits", "--epochs", "1", "--hidden", "16", "--device", "cpu", "--knn-every", "0"]
    words += ["--encoder", SMALL_ENCODER]
    assert main(["pretrain", "byol", *words, "--no-predictor", "--out", str(tmp_path / "run")]) == 0
    assert not list(load_run(tmp_path / "run", "cpu").method.predictor.parameters())


def test_infomins_policy_is_stronger_and_that_of_its_photographs():
    infomin, moco = (view_pipeline(recipe(name, "imagenet")).augmentations for name in ("infomin", "moco"))
    assert infomin == (dataclasses.replace(POLICIES["infomin"], operations=2),) * 2
    assert infomin[0].brightness > moco[0].brightness
    small = recipe("infomin", "cifar10")
    assert view_pipeline(small) == view_pipeline(recipe("moco", "cifar10"))
    assert view_pipeline(small.replace(policy="infomin", randaugment=2)).augmentations == infomin


def test_published_options():
    simsiam, moco, barlow = (recipe(name) for name in ("simsiam", "moco", "barlow"))
    assert (simsiam.optimizer, simsiam.lr, simsiam.weight_decay, simsiam.batch) == ("sgd", 0.03, 5e-4, 512)
    assert (simsiam.epochs, simsiam.layers, simsiam.projection, simsiam.bottleneck) == (800, 2, 2048, 512)
    assert (moco.lr, moco.temperature, moco.queue, moco.tau, moco.batch) == (0.03, 0.1, 4096, 0.99, 512)
    assert (barlow.optimizer, barlow.lr, barlow.redundancy, barlow.layers) == ("lars", 0.2, 0.005, 3)
    assert recipe("infomin").temperature == 0.15


# by the authors' papers and published commands, for a ResNet-50; a method that is published for ImageNet adds a line
IMAGENET = {
    "byol": {"optimizer": "lars", "lr": 0.3, "weight_decay": 1e-6, "tau": 0.99, "hidden": 4096, "projection": 256},
    "simclr": {"optimizer": "lars", "lr": 0.3, "weight_decay": 1e-6, "temperature": 0.1, "batch": 4096, "hidden": 2048},
    "simsiam": {"optimizer": "sgd", "lr": 0.05, "weight_decay": 1e-4, "batch": 512, "epochs": 100, "layers": 3},
    "moco": {"lr": 0.03, "weight_decay": 1e-4, "batch": 256, "epochs": 200, "queue": 65536, "tau": 0.999},
    "infomin": {"lr": 0.03, "batch": 256, "temperature": 0.15, "queue": 65536, "tau": 0.999, "randaugment": 2},
    "barlow": {"optimizer": "lars", "lr": 0.2, "weight_decay": 1.5e-6, "batch": 2048, "epochs": 1000, "layers": 3},
    "vicreg": {"optimizer": "lars", "lr": 0.2, "weight_decay": 1e-6, "batch": 2048, "epochs": 1000, "layers": 3},
    "supervised": {"optimizer": "sgd", "lr": 0.1, "weight_decay": 1e-4, "batch": 256, "epochs": 90},
    "swav": {"optimizer": "lars", "lr": 0.3, "weight_decay": 1e-6, "batch": 4096, "epochs": 800, "prototypes": 3000},
    "dino": {"optimizer": "sgd", "lr": 0.03, "weight_decay": 1e-4, "batch": 512, "tau": 0.996, "prototypes": 65536},
    "deepcluster": {"optimizer": "lars", "lr": 0.3, "batch": 4096, "epochs": 800, "prototypes": 3000},
    "obow": {"optimizer": "sgd", "lr": 0.03, "weight_decay": 1e-4, "batch": 256, "epochs": 200, "prototypes": 8192},
    "distill": {"optimizer": "lars", "layers": 2},  # nothing is published for features on the sphere
}


@pytest.mark.parametrize("name", METHODS)
def test_on_imagenet_a_method_is_as_published(name):
    config = recipe(f"{name}-mhe", "imagenet")
    assert (config.encoder, config.stem, config.size) == ("torchvision/resnet50", "imagenet", 224)
    published = IMAGENET.get(name, {})
    assert {option: getattr(config, option) for option in published} == published
    photographs, small = recipe(name, "imagenette"), recipe(name, "cifar10")
    for option in ("epochs", "queue", "prototypes", "tau", "hidden", "projection"):  # of a hundredth of the images
        assert getattr(photographs, option, None) == getattr(small, option, None)
    assert photographs.batch <= max(512, METHODS[name].recipes.get("default", {}).get("batch", 0))
    for option in ("optimizer", "lr", "weight_decay", "layers", "temperature", "policy", "randaugment", "small_crops"):
        assert getattr(photographs, option, None) == getattr(config, option, None), option


def test_views_of_photographs_are_the_methods():
    sides, shares = {}, {}
    for name in METHODS:
        views = view_pipeline(recipe(name, "imagenet"))
        sides[name] = [views.size_of(how) for how in views.augmentations]
        shares[name] = {how.crop for how in views.augmentations}
    assert sides["swav"] == sides["deepcluster"] == [224, 224, *[96] * 6]
    assert sides["dino"] == [224, 224, *[96] * 8]
    assert sides["byol"] == sides["moco"] == [224, 224]
    assert shares["swav"] == shares["dino"] == {(0.14, 1.0), (0.05, 0.14)}
    assert shares["moco"] == shares["simsiam"] == shares["infomin"] == {(0.2, 1.0)}
    moco, simclr = (view_pipeline(recipe(name, "imagenet")).augmentations[0] for name in ("moco", "simclr"))
    assert (moco.brightness, moco.contrast, moco.saturation, moco.hue, moco.blur) == (0.4, 0.4, 0.4, 0.1, 0.5)
    assert (simclr.brightness, simclr.contrast, simclr.saturation, simclr.hue) == (0.8, 0.8, 0.8, 0.2)


@pytest.mark.parametrize(("name", "side"), [("infomin", 4), ("swav", 4)])
def test_an_encoder_of_one_size_is_told_apart_before_a_run(name, side):
    """Patches of the jigsaw and small crops are of another."""
    config = recipe(name, "digits", **those_of(name, small_crops=1))
    images, method = load_data("digits")[0], build_method(config, 1)
    try_encoder(config, method, images)

    class Fixed(torch.nn.Module):
        num_features = 64

        def forward(self, x):
            assert x.shape[2:] == (8, 8), "8 × 8 alone"
            return x.flatten(1)

    method.encoder = Fixed()
    with pytest.raises(UserError, match=rf"does not accept the 1 × {side} × {side} images of {name} .*8 × 8 alone"):
        try_encoder(config, method, images)


@pytest.mark.parametrize("name", METHODS)
def test_energy_layers_name_what_a_method_has(name):
    config = recipe(f"{name}-mhe", "digits", **those_of(name, hidden=32, projection=8))
    assert regularizer_of(config, build_method(config, 1, 10)) is not None


def test_a_folders_learning_rate_is_the_methods(tmp_path):
    """The one by a folder's size is for LARS."""
    from PIL import Image

    from hypersphere.runs.recipes import recipe_for

    for number in range(40):
        Image.new("RGB", (32, 32)).save(tmp_path / f"{number}.png")
    assert recipe_for("byol", str(tmp_path)).lr == 1.5
    assert recipe_for("moco", str(tmp_path)).lr == 0.03
    assert recipe_for("moco", str(tmp_path), lr=0.5).lr == 0.5
    assert recipe_for("dino", str(tmp_path)).optimizer == "lars"
    for number in range(40):
        Image.new("RGB", (100, 100)).save(tmp_path / f"{number}.png")
    photographs = recipe_for("dino", str(tmp_path))  # as published, but for what their number decides
    assert (photographs.optimizer, photographs.lr, photographs.small_crops) == ("sgd", 0.03, 8)
    assert (photographs.batch, photographs.prototypes) == (8, 4096)
    assert recipe_for("dino", str(tmp_path), optimizer="lars", size=32).optimizer == "lars"
    assert recipe_for("byol", str(tmp_path)).lr == recipe_for("simclr", str(tmp_path)).lr == 0.3


def test_the_methods_are_listed_in_their_own_words(capsys):
    assert main(["methods"]) == 0
    listed = capsys.readouterr().out
    for name, kind in METHODS.items():
        paper = re.search(rf"^{name}: .*\((.+)\): ", listed, re.MULTILINE)
        assert paper, f"{name}: the first line of its file must be 'Idea (paper): what it does', see own-method.md"
        assert kind.__module__ == f"hypersphere.methods.{name}"
    assert "lr 0.03" in listed
    assert main(["methods", "moco-mhe"]) == 0
    one = capsys.readouterr().out
    assert "Shuffled BatchNorm" in one
    assert "energy 10.0" in one
    assert "barlow" not in one
    assert main(["methods", "mocco"]) == 2
    assert "did you mean 'moco'" in capsys.readouterr().err


def test_what_explains_the_command_needs_no_torch():
    code = """if True:
        import atexit, sys
        from hypersphere.cli import main

        atexit.register(lambda: print("torch" in sys.modules))
        main(["methods", "--help"])"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert found.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize("name", ["infomin", "supervised"])
def test_monitors_look_at_a_method_while_it_learns(name, tmp_path):
    options = {**SMALL, "encoder": SMALL_ENCODER, "knn_every": 1, "batch": 256, "epochs": 1}
    options |= those_of(name, hidden=16)
    assert "knn" in pretrain(name, "digits", out=tmp_path / "run", **options).metrics[-1]
