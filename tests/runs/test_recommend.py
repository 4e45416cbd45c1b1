"""The method that is trained if the user names none."""

from pathlib import Path

import numpy as np
import pytest

from hypersphere.cli import main
from hypersphere.errors import UserError
from hypersphere.paper.compared_runs import as_csv, compared_runs
from hypersphere.runs import recommend as module
from hypersphere.runs.pretraining import pretrain
from hypersphere.runs.recipes import recipe_for
from hypersphere.runs.recommend import ComparedRun, recommend
from hypersphere.runs.results import read_results

ROOT = Path(__file__).parents[2]


def run(method, knn, data="small", images=1000, side=32, epochs=10, **options):
    measured = (knn, None, None, "GPU", 1, "validation", 500, "a test")
    return ComparedRun(method, options, data, images, side, "encoder", epochs, *measured)


def test_the_table_in_the_package_is_that_of_the_results():
    saved = Path(module.__file__).with_name(module.FILE).read_text()
    assert saved == as_csv(compared_runs(read_results(ROOT / "results")))
    assert as_csv(module.compared_runs()) == saved


def test_the_best_method_on_the_most_similar_images_is_chosen():
    runs = [
        *(run("byol", 60.0), run("byol", 70.0, lr=2.0), run("moco", 65.0), run("supervised", 99.0)),
        *(run("simclr", 80.0, "large", images=100_000), run("swav", 50.0, "large", images=100_000, epochs=5)),
        run("dino", 30.0, "photographs", side=128),
    ]
    few = recommend(500, 32, 20, runs)
    assert (few.method, few.options) == ("byol", {"lr": 2.0})
    assert [other.method for other in few.others] == ["moco"]
    setting = "1,000 images of small after 10 epochs"
    assert str(few) == f"byol: best of 2 methods on {setting} (k-NN accuracy 70.0 %, moco 65.0 %; 1 seed)"
    assert [recommend(100_000, 64, epochs, runs).method for epochs in (6, 9)] == ["swav", "simclr"]
    assert recommend(1_000, 32, 1000, runs).method == "simclr"  # which were shown as many images
    assert recommend(30_000, 65, 10, runs).method == "dino"
    assert recommend(None, 224, 10, runs).others == []


def test_a_variant_must_be_better_by_more_than_the_error_of_the_images():
    """80 % of 500 images has a standard error of 1.8 points."""
    plain = recommend(1000, 32, 10, [run("simclr", 78.3), run("simclr-uni", 80.0), run("moco", 60.0)])
    assert (plain.method, [other.method for other in plain.others]) == ("simclr", ["simclr-uni", "moco"])
    assert str(plain).startswith("simclr: within a standard error of the best of 3 methods on")
    assert recommend(1000, 32, 10, [run("simclr", 78.1), run("simclr-uni", 80.0)]).method == "simclr-uni"
    assert recommend(1000, 32, 10, [run("simclr-uni", 80.0), run("moco", 79.9)]).method == "simclr-uni"


def test_which_method_is_best_depends_on_the_length():
    """BYOL with the uniformity loss learns faster; after 300 epochs, BYOL is ahead of it (3 seeds each)."""
    assert [recommend(50_000, 32, epochs).method for epochs in (20, 50, 300)] == ["byol-uni", "byol-uni", "byol"]
    assert recipe_for(data="cifar10").title == "byol"
    assert recipe_for(data="cifar10", epochs=50).title == "byol-uni"


def test_what_was_tuned_for_other_images_is_adapted(tmp_path, capsys):
    generator = np.random.default_rng(0)
    images = tmp_path / "images.npy"
    np.save(images, generator.integers(0, 256, (200, 32, 32, 3), dtype=np.uint8))
    config = recipe_for(data=str(images))
    best = recommend(200, 32, 300).best
    assert (config.title, config.lr) == (best.method, best.options["lr"])
    assert config.batch == 32 < best.options["batch"]
    shown = capsys.readouterr().err
    assert f"chose {best.method}: best of 12 methods on 45,000 images of cifar10" in shown
    assert f"1 seed); options: crop_min 0.2, lr {best.options['lr']}" in shown
    assert recipe_for(data=str(images), lr=2, batch=16).lr == 2
    assert recipe_for(data=str(images), optimizer="adamw").lr != config.lr  # which is for LARS
    shown = capsys.readouterr().err
    assert "; options: crop_min 0.2, lr 2.0" not in shown  # what the user has given
    assert "its options are left out" in shown
    assert recipe_for(data=str(images), size=96).title == recommend(200, 96, 300).method
    assert recipe_for(data="cifar10").batch == best.options["batch"]
    digits = recipe_for(data="digits")  # a recipe with another optimizer keeps its learning rate
    assert (digits.title, digits.optimizer, digits.lr, digits.batch) == (best.method, "adamw", 0.008, 128)


def test_an_optimizer_is_suggested_with_its_options(tmp_path):
    images = tmp_path / "images.npy"
    np.save(images, np.random.default_rng(0).integers(0, 256, (200, 96, 96, 3), dtype=np.uint8))
    best, config = recommend(200, 96, 300).best, recipe_for(data=str(images))
    assert best.options["optimizer"] == "muon"
    assert recipe_for(data=str(images), size=64).optimizer == "muon"  # photographs, whatever the encoder sees
    assert {name: getattr(config, name) for name in best.options} == best.options
    assert config.momentum == recipe_for("simclr", data=str(images), optimizer="muon").momentum
    assert recipe_for(data=str(images), optimizer="adamw").weight_decay != best.options["weight_decay"]


def test_options_are_checked_with_the_chosen_method():
    with pytest.raises(UserError, match="unknown option 'taau': did you mean 'tau'"):
        recipe_for(data="digits", taau=1)
    with pytest.raises(UserError, match="`queue` is not an option of byol"):
        recipe_for(data="digits", queue=64)
    with pytest.raises(UserError, match="`epochs` must be a whole number"):
        recipe_for(data="digits", epochs="many")
    with pytest.raises(UserError, match="missing `data`"):
        pretrain()


def test_methods_shows_the_runs_behind_a_choice(capsys):
    assert main(["methods", "--for", "digits"]) == 0
    shown = capsys.readouterr().out
    assert "cifar10: 45,000 images at 32 pixels" in shown
    assert "supervised" not in shown
    assert shown.index("byol-uni") < shown.index("simclr") < shown.index("obow")
    assert shown.rstrip().endswith("next: hypersphere pretrain --data digits")


def test_a_run_without_a_method(tmp_path):
    options = ["--data", "digits", "--epochs", "1", "--hidden", "8", "--projection", "4", "--knn-every", "0"]
    assert main(["pretrain", *options, "--out", str(tmp_path / "run")]) == 0
    assert pretrain(resume=tmp_path / "run").config.title == "byol-uni"


def test_a_method_that_did_better_with_another_optimizer_is_told(tmp_path, capsys):
    images = tmp_path / "images.npy"
    np.save(images, np.random.default_rng(0).integers(0, 256, (200, 96, 96, 3), dtype=np.uint8))
    told = "simclr with its published options; on imagenette-160 it did best with `optimizer` muon (k-NN accuracy"
    for options, wanted in (({}, True), ({"optimizer": "muon"}, False)):
        recipe_for("simclr", data=str(images), **options)
        assert (told in capsys.readouterr().err) == wanted
    recipe_for("dino", data=str(images))  # which has no such run
    assert "published options" not in capsys.readouterr().err
