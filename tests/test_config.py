import ast
import copy
import dataclasses
import functools
import inspect
import itertools
import json
import pickle
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch

import hypersphere as hs
from hypersphere.cli.help import help_texts
from hypersphere.config import Config, config_type, recipe
from hypersphere.data import FILE_SOURCES, SOURCES
from hypersphere.errors import UserError
from hypersphere.methods import METHODS, MultiCropOptions
from hypersphere.methods.options import PROVIDED, method_options
from hypersphere.nn import ENCODERS
from hypersphere.optim.options import USUAL
from hypersphere.presets import DATA
from hypersphere.runs.recipes import recipe_for
from hypersphere.runs.run_folders import default_folder
from hypersphere.views import PIPELINES


def test_recipes_are_the_papers():
    byol, uni, mhe = (recipe(name, "cifar10") for name in ("byol", "byol-uni", "byol-mhe"))
    assert (byol.epochs, byol.batch, byol.lr, byol.tau, byol.optimizer) == (300, 1024, 1.5, 0.99, "lars")
    assert (byol.hidden, byol.projection, byol.encoder, byol.stem) == (4096, 256, "torchvision/resnet18", "cifar")
    assert (byol.uniformity, byol.energy) == (0, 0)
    assert (uni.uniformity, uni.uniformity_t) == (0.125, 2)
    assert (mhe.energy, mhe.energy_s, mhe.energy_metric) == (10, 2, "geodesic")
    assert mhe.energy_layers == ("projector", "predictor")
    augmentation = PIPELINES["cifar10"].augmentations[0]
    assert augmentation.crop == (0.08, 1.0)
    colour = (augmentation.brightness, augmentation.contrast, augmentation.saturation, augmentation.hue)
    assert colour == (0.4, 0.4, 0.2, 0.1)
    assert (FILE_SOURCES["imagenet"].neighbours, FILE_SOURCES["imagenet"].temperature) == (20, 0.07)
    assert (augmentation.jitter, augmentation.grey, augmentation.blur, augmentation.solarize) == (0.8, 0.2, 0, 0)


# A measured result is found again by the hash of its config: these must never change.
PINNED = {
    ("byol", "cifar10"): "c3aa9744214c",
    ("byol-uni", "cifar10"): "589cd2330148",
    ("byol-mhe", "cifar10"): "eb7957866992",
    ("simclr", "cifar100"): "89fa162fcc9b",
    ("byol-mhe", "digits"): "f30e79c7ff79",
}


@pytest.mark.parametrize(("preset", "data"), PINNED)
def test_hashes_are_pinned(preset, data):
    assert recipe(preset, data).hash == PINNED[preset, data]


def test_the_hash_covers_what_changes_the_result_and_nothing_else():
    base = Config()
    assert base.replace(seed=1).hash != base.hash
    assert base.replace(energy=1.0).hash != base.hash
    assert base.replace(device="cpu", log_every=3, save_every=7, knn_every=0, precision="float32").hash == base.hash
    assert base.replace(tau=0.99).hash == base.hash


def test_energy_on_photographs_is_the_papers():
    everywhere = (1.0, ("encoder", "projector", "predictor"))
    for method in ("byol-mhe", "byol-uni-mhe"):
        config = recipe(method, "imagenet")
        assert (config.energy, config.energy_layers) == everywhere
    assert recipe("byol", "imagenet").energy == recipe("byol-uni", "imagenette").energy == 0
    assert recipe("byol-mhe", "cifar10").energy == recipe("simclr-mhe", "imagenet").energy == 10


def test_the_moving_average_of_byol_is_not_that_of_others():
    assert [recipe(method, "stl10").tau for method in ("byol", "moco", "infomin", "obow")] == [0.996, 0.99, 0.99, 0.99]


def test_json_and_back():
    config = recipe("byol-mhe", "digits", energy_layers=("encoder",), out="x", micro_batch=64)
    assert Config.from_json(json.loads(json.dumps(config.to_json()))).hash == config.hash
    assert Config.from_json(config.to_json()).energy_layers == ("encoder",)


def test_every_name_in_a_recipe_exists():
    assert set(DATA) == {*SOURCES, *FILE_SOURCES}
    assert set(SOURCES) <= set(PIPELINES)
    for preset in (*METHODS, "byol-uni", "byol-mhe"):
        for data in DATA:
            config = recipe(preset, data)
            assert config.encoder in ENCODERS
            assert config.method in METHODS
            assert config.title == preset


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"energy": -1.0}, "`energy` must be at least 0, got -1.0"),
        ({"uniformity": -0.1}, "`uniformity` must be at least 0"),
        ({"epochs": 0}, "`epochs` must be at least 1"),
        ({"lr": float("nan")}, "`lr` must be above 0, got nan"),
        ({"tau": 1.5}, "`tau` must be between 0 and 1"),
        ({"momentum": 1.0}, "`momentum` must be at least 0 and below 1, got 1.0"),
        ({"method": "swav", "prototypes": 1}, "`prototypes` must be at least 2, got 1"),
        ({"weight_decay_end": -1.0}, "`weight_decay_end` must be at least 0"),
        ({"micro_batch": 100}, "`micro_batch` must be a divisor of `batch` 1024"),
        ({"white": 100}, "`white` must be between 255 and 65535, got 100"),
        ({"crop_min": 0.0}, "`crop_min` must be above 0"),
        ({"warmup": 300}, "`warmup` must be less than `epochs` 300"),
        ({"batch": 1}, "`batch` must be at least 2"),
        ({"seed": 2**32}, "`seed` must be at least 0 and below 4294967296, got 4294967296"),
        ({"epocs": 3}, "unknown option 'epocs': did you mean 'epochs'"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        Config().replace(**options)


@pytest.mark.parametrize("wrong", [["digits"], None, torch.zeros(3, 3)])
def test_data_and_methods_are_names(wrong):
    with pytest.raises(UserError, match=r"^`data` must be a name, got "):
        recipe("byol", wrong)
    with pytest.raises(UserError, match=r"`method` must be a name \(byol, .*\), got an object of type \w+$"):
        recipe(wrong, "digits")


def documented(kind):
    """The fields of a dataclass, and of its bases, that have a string literal below them."""
    names = set()
    for base in kind.__mro__:
        if not dataclasses.is_dataclass(base) or base.__module__ == "types":  # made from others
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        for field, text in itertools.pairwise(body.body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                names.add(field.target.id)
    return names


@pytest.mark.parametrize("method", METHODS)
def test_every_option_is_explained(method):
    """Below its field, or in the docstring of the method."""
    kind, docstring = config_type(method), " ".join(METHODS[method].__doc__.split())
    helps = help_texts(kind)
    fields = {field.name for field in dataclasses.fields(kind)}
    place = f"under 'Args:' in the docstring of {METHODS[method].__name__}"
    assert fields == helps.keys(), f"explain {', '.join(fields ^ helps.keys())} {place}"
    for name in fields - documented(kind):
        whole = rf" {name}: {re.escape(helps[name])}( \w+:|$)"  # another entry, a section or the end follows
        assert re.search(whole, docstring), f"explain {name} in one paragraph {place}"


@pytest.mark.parametrize("method", METHODS)
def test_options_are_the_parameters_of_their_method(method):
    """By names and defaults, so that a method in a loop of one's own is that of its recipe."""
    options = dataclasses.fields(method_options(METHODS[method]))
    crops = {field.name for field in dataclasses.fields(MultiCropOptions)}
    parameters = inspect.signature(METHODS[method]).parameters
    given = {name: one.default for name, one in parameters.items() if name not in PROVIDED}
    assert given == {field.name: field.default for field in options if field.name not in crops}
    assert "norm" not in parameters or parameters["norm"].default == Config.norm


@pytest.mark.parametrize("method", METHODS)
def test_recipes_have_no_other_options(method):
    known = {field.name for field in dataclasses.fields(config_type(method))}
    for recipe_of_method in METHODS[method].recipes.values():
        assert recipe_of_method.keys() <= known
    assert METHODS[method].recipes.keys() <= {"default", "transformer", *DATA}
    common = {field.name for field in dataclasses.fields(Config)}
    assert all(options.keys() <= common for options in DATA.values())


@pytest.mark.parametrize("method", METHODS)
def test_options_of_other_methods_are_refused(method):
    every = {field.name: field.default for kind in METHODS for field in dataclasses.fields(config_type(kind))}
    config = recipe(method, "digits")
    for name in every.keys() - vars(config).keys():
        having = [kind for kind in METHODS if hasattr(recipe(kind), name)]
        told = f"`{name}` is not an option of {method} ({', '.join(having)} {'has' if len(having) == 1 else 'have'} it)"
        for make in (
            config.replace,
            functools.partial(recipe, method, "digits"),
            functools.partial(hs.pretrain, method),
        ):
            with pytest.raises(UserError, match=f"^{re.escape(told)}$"):
                make(**{name: every[name]})


OLD = Path(__file__).parent / "fixtures" / "v0.1.0" / "configs.json"  # with their hashes


def test_configs_of_the_last_version_load_with_their_hashes():
    """Those of recipes; they have all options of all methods."""
    for saved, hash in json.loads(OLD.read_text()):
        config = Config.from_json(saved)
        assert config.hash == hash
        again = Config.from_json(json.loads(json.dumps(config.to_json())))
        assert (again, again.hash) == (config, hash)
        assert pickle.loads(pickle.dumps(config)).hash == config.replace(log_every=3).hash == hash
        assert not hasattr(Config.from_json({**saved, "method": "simclr"}), "tau")
        assert vars(config).items() <= {**config.to_json(), "root": None, "out": None}.items()
    with pytest.raises(UserError, match="unknown option 'epocs'"):
        Config.from_json({"method": "byol", "epocs": 3})


def test_another_method_keeps_the_options_that_it_has():
    moco = recipe("byol", "digits", hidden=9, lr=0.1).replace(method="moco")
    assert (moco.hidden, moco.lr, moco.queue, hasattr(moco, "tau_end")) == (9, 0.1, 4096, False)
    assert type(moco) is config_type("moco") is type(Config(method="moco"))
    assert copy.deepcopy(moco) == moco != moco.replace(queue=8)


def test_values_take_the_type_of_their_field():
    assert Config(energy=10).hash == Config(energy=10.0).hash
    assert Config(energy_layers="predictor").energy_layers == ("predictor",)
    assert Config(energy_layers=["predictor"]) == Config(energy_layers=("predictor",))
    assert type(Config(epochs=np.int64(3)).epochs) is int
    assert Config(out="somewhere").out.name == "somewhere"
    for options, message in (
        ({"norm": "layer"}, "batch, group, none"),
        ({"epochs": "3"}, "`epochs` must be a whole number, got '3'"),
        ({"epochs": True}, "a whole number, got True"),
        ({"energy": "much"}, "a number, got 'much'"),
        ({"energy": True}, "a number, got True"),
        ({"energy_half_space": 1}, "True or False, got 1"),
        ({"energy_layers": (3,)}, "`energy_layers` must be a name, got 3"),
        ({"out": 3}, "`out` must be a path, got 3"),
        ({"precision": "int8"}, "bfloat16"),
    ):
        with pytest.raises(UserError, match=message):
            Config(**options)


def test_warm_up_is_ten_epochs_or_a_tenth():
    from hypersphere.runs.build import plan_of

    assert [plan_of(Config(epochs=n), 45_000).warmup_epochs for n in (300, 100, 50, 5)] == [10, 10, 5, 0]
    assert plan_of(Config(epochs=50, warmup=10), 45_000).warmup_epochs == 10


def test_a_folders_name_is_part_of_file_names():
    assert recipe("byol", "/some where/my images/").data_name == "my-images"
    assert recipe("byol", "/data/part-{000..123}.tar").data_name == "part--000..123-.tar"
    assert default_folder(recipe("byol", "/data/photos")).parts[:-1] == ("runs",)
    assert default_folder(recipe("byol", "cifar10")).name.startswith("byol-cifar10-")


def test_another_optimizer_brings_its_learning_rate():
    """1.5 is the rate of LARS; with Muon or AdamW no network would learn."""
    configs = {name: recipe("simclr", optimizer=name) for name in USUAL}
    rates = {name: (config.lr, config.weight_decay) for name, config in configs.items()}
    assert rates == {"lars": (1.5, 1e-6), "sgd": (0.03, 5e-4), "adamw": (0.001, 0.05), "muon": (0.004, 0.01)}
    given = recipe("simclr", optimizer="muon", lr=0.01)
    assert (given.lr, given.weight_decay) == (0.01, 0.01)
    assert recipe("moco", optimizer="sgd") == recipe("moco")  # its own
    photographs = recipe_for("simclr", "imagenette-160", optimizer="muon")
    assert (photographs.lr, photographs.weight_decay) == (0.004, 0.01)
    transformer = {"encoder": "timm/test_vit", "size": 64}
    assert recipe_for("simclr", "imagenette-160", **transformer).lr == 1.5e-4
    assert recipe_for("simclr", "imagenette-160", **transformer, optimizer="sgd").lr == 0.03
