"""A run as it is used from Python, and as it lies in its folder."""

import json
import multiprocessing
import re
import shutil
import subprocess
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image

import hypersphere as hs
from hypersphere.cli import main
from hypersphere.config import recipe
from hypersphere.data import FILE_SOURCES, SOURCES, Dataset, Images, Listing, load_data
from hypersphere.data.named_datasets import FileSource, Source
from hypersphere.errors import UserError
from hypersphere.evaluate import extract
from hypersphere.evaluate.finetune import fine_tune
from hypersphere.methods import METHODS
from hypersphere.presets import DATA
from hypersphere.runs import machine
from hypersphere.runs.build import build_method
from hypersphere.runs.machine import provenance
from hypersphere.runs.recipes import recipe_for, unused_options
from hypersphere.runs.training import _tell_if_no_better
from hypersphere.train import load_checkpoint, save_checkpoint
from hypersphere.util.files import lock_folder
from hypersphere.views import PIPELINES, evaluation_view
from tests.networks import SMALL_ENCODER

OPTIONS = {"encoder": SMALL_ENCODER, "epochs": 1, "hidden": 32, "projection": 8, "knn_every": 0, "progress": False}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return hs.pretrain("byol", "digits", device=torch.device("cpu"), out=tmp_path_factory.mktemp("run"), **OPTIONS)


@pytest.fixture
def folder(trained, tmp_path):
    """One's own copy of the run."""
    return shutil.copytree(trained.path, tmp_path / "run")


def test_a_checkout_without_git_has_an_unknown_commit(monkeypatch):
    monkeypatch.delenv("HYPERSPHERE_COMMIT", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    assert provenance(torch.device("cpu"))["commit"] == "unknown"


def test_a_commit_is_dirty_where_code_has_changed(tmp_path, monkeypatch):
    """Results and pages are no code: writing them, as `reproduce` does, changes no version."""
    monkeypatch.delenv("HYPERSPHERE_COMMIT", raising=False)
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "src/hypersphere/runs/machine.py"))
    (tmp_path / "src/hypersphere").mkdir(parents=True)
    code, page = tmp_path / "src/hypersphere/machine.py", tmp_path / "RESULTS.md"
    code.touch(), page.touch()
    author = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for words in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "one"]):
        subprocess.run(["git", "-C", tmp_path, *words], check=True)
    page.write_text("more")
    commit = provenance(torch.device("cpu"))["commit"]
    assert re.fullmatch("[0-9a-f]{12}", commit)
    code.write_text("pass")
    assert provenance(torch.device("cpu"))["commit"] == f"{commit}-dirty"


def test_a_loaded_run_encodes_as_evaluation_does(trained):
    images, _ = load_data("digits")
    wanted = extract(trained.encoder, images.pixels, lambda pixels: evaluation_view(pixels, PIPELINES["digits"]))
    run = hs.load_run(trained.path, torch.device("cpu"))
    run.encoder.train()
    for pixels in (images.pixels, images.pixels.numpy()):
        features = run.encode(pixels)
        assert torch.equal(features, wanted)
        assert (features.dtype, features.requires_grad) == (torch.float32, False)
    mirrored = images.pixels[:3].numpy()[..., ::-1]  # a view with a negative stride
    torch.testing.assert_close(run.encode(mirrored), run.encode(images.pixels[:3].flip(-1)))
    assert run.encode(torch.zeros(0, 1, 8, 8, dtype=torch.uint8)).shape == (0, 32)


@pytest.mark.parametrize(("data", "side"), [("cifar10", 32), ("stl10", 96), ("imagenet", 300)])
def test_of_no_images_there_are_no_features(data, side, tmp_path):
    config = recipe("byol", data, encoder="hypersphere/digits", hidden=8, projection=4)
    run = hs.Run(tmp_path, config, build_method(config, channels=3), 0, 0.0)
    assert run.encode(torch.zeros(0, 3, side, side, dtype=torch.uint8)).shape == (0, 128)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.full((2, 1, 8, 8), 7.5), "images: its pixels are floats up to 7.5: scale them to 0 … 1"),
        (torch.full((2, 1, 8, 8), torch.inf), "2 of 2 images have NaN or infinite pixels, such as image 0"),
        ([[1, 2]], "an array or tensor C × H × W or H × W × C, got list"),
        (np.zeros((3, 8, 8), np.uint8), r"array of shape \(3, 8, 8\), which may be one image or grey ones"),
        (np.zeros((2, 2, 8, 8), np.uint8), r"an image of torch.uint8 and shape \(2, 8, 8\) .* not 1 or 3"),
    ],
)
def test_what_cannot_be_encoded_is_told(trained, images, message):
    with pytest.raises(UserError, match=message):
        trained.encode(images)


def test_probes_by_name(folder):
    run = hs.load_run(folder)
    assert run.evaluate("knn").keys() == {"knn", "sphere"}
    with pytest.raises(UserError, match="`probes` must be one or more of linear, "):
        run.evaluate(())
    assert main(["evaluate", str(folder), "--probes"]) == 2


def test_fine_tuning_leaves_the_run_as_it_is(folder, capsys):
    run = hs.load_run(folder)
    before = {name: value.clone() for name, value in run.method.state_dict().items()}
    run.evaluate("knn")
    found = run.evaluate(["semi-1"])
    assert all(torch.equal(value, before[name]) for name, value in run.method.state_dict().items())
    assert run.evaluations["validation"].keys() == {"knn", "semi-1", "sphere"}
    assert main(["evaluate", str(folder), "--probes", "semi-1", "--device", "cpu"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "semi-1 (10 labels)" in line]
    assert f"{found['semi-1']['top1']:.2f}" in row
    assert f"{found['semi-1']['top5']:.2f}" in row


@pytest.mark.parametrize("probe", ["linear", "linear-cached", "knn", "semi-1"])
def test_features_that_are_no_numbers_have_no_accuracy(folder, capsys, probe):
    saved = load_checkpoint(folder / "checkpoint.pt")
    for name, value in saved["method"].items():
        if name.startswith("encoder") and value.ndim > 1:
            value.fill_(torch.nan)
    save_checkpoint(folder / "checkpoint.pt", saved)
    assert main(["evaluate", str(folder), "--probes", probe, "--device", "cpu"]) == 2
    assert "1137 of 1137 images have features of NaN or infinity: did the run diverge?" in capsys.readouterr().err
    assert not (folder / "evaluation.json").exists()


def test_fine_tuning_that_diverges_is_told_and_not_kept(folder, capsys, monkeypatch):
    monkeypatch.setattr("hypersphere.evaluate.suite.fine_tune", partial(fine_tune, lr=1e30))
    assert main(["evaluate", str(folder), "--probes", "semi-1", "--device", "cpu"]) == 2
    printed = capsys.readouterr()
    assert re.search(r"fine-tuning diverged: the loss is (nan|inf) after epoch \d+ of 60 on 10 images", printed.err)
    assert "choose other --probes" in printed.err
    assert (printed.out, len(printed.err.splitlines())) == ("", 1)
    assert "semi-1" not in hs.load_run(folder).evaluations["validation"]


def test_clusters_must_be_fewer_than_images_before_there_is_a_folder(tmp_path):
    with pytest.raises(UserError, match="`prototypes` must be at most the number of images, 1137, got 2000"):
        hs.pretrain("deepcluster", "digits", prototypes=2000, out=tmp_path / "run", **OPTIONS)
    assert not (tmp_path / "run").exists()
    np.savez(tmp_path / "few.npz", images=np.zeros((120, 32, 32), np.uint8))
    assert recipe_for("deepcluster", tmp_path / "few.npz").prototypes == 15


@pytest.fixture
def _cifar_of_noise(monkeypatch):
    labels = torch.arange(200) % 10
    images = Images(torch.randint(0, 256, (200, 3, 32, 32), dtype=torch.uint8), labels, tuple("abcdefghij"))
    for name in ("cifar10", "cifar100"):
        monkeypatch.setitem(SOURCES, name, Source(lambda root: (images, images), 5, "noise", neighbours=7))


@pytest.mark.usefixtures("_cifar_of_noise")
def test_a_transfer_is_kept_under_its_name(folder, capsys):
    run = hs.load_run(folder)
    own = run.evaluate("knn")
    assert run.evaluate(transfer="cifar10").keys() == {
        f"transfer/cifar10/{p}" for p in ("knn", "linear-cached", "sphere")
    }
    found = run.evaluate("knn", transfer=("cifar10", "cifar100"))
    assert found.keys() == {f"transfer/{d}/{p}" for d in ("cifar10", "cifar100") for p in ("knn", "sphere")}
    assert run.evaluations["validation"].items() >= {**own, **found}.items()
    assert main(["evaluate", str(folder), "--transfer", "cifar10", "--holdout", "test"]) == 0
    printed = capsys.readouterr().out
    tables = ("transfer/cifar10/7-NN", "transfer/cifar10/linear-cached")
    for words in (
        *tables,
        "test images of cifar10",
        "200 held-out images:",
        "accuracies are uncertain by up to ± 7 points",
    ):
        assert words in " ".join(printed.split())


@pytest.mark.parametrize("name", ["imagenette", "imagenet"])
def test_a_transfer_may_be_to_photographs(tmp_path, monkeypatch, name):
    """As the encoder takes them: whole, not a middle of 16 × 16 pixels."""
    images, parts = np.random.default_rng(0).integers(0, 256, (64, 16, 16, 3), dtype=np.uint8), []
    np.savez(tmp_path / "own.npz", images=images)
    run = hs.pretrain("byol", tmp_path / "own.npz", device="cpu", out=tmp_path / "run", **OPTIONS, batch=32)
    for part, count in (("train", 8), ("val", 3)):
        paths = [tmp_path / f"{part}{label}-{n}.png" for label in range(2) for n in range(count)]
        for n, path in enumerate(paths):
            light = np.zeros((60, 90), np.uint8)
            light[:15] = light[-15:] = 200 * (n >= count)  # the classes differ above and below alone
            Image.fromarray(light).save(path)
        parts.append(Listing(tuple(paths), torch.arange(2).repeat_interleave(count), ("dark", "light")))
    monkeypatch.setitem(FILE_SOURCES, name, FileSource(lambda root: tuple(parts), 2, "drawn"))
    found = run.measure(("knn", "linear-cached"), transfer=name, holdout="test")
    assert found[f"transfer/{name}/linear-cached"]["top1"] == 100


@pytest.mark.usefixtures("_cifar_of_noise")
def test_a_run_that_has_seen_its_own_validation_images_has_not_seen_others(trained):
    run = hs.load_run(trained.path)
    run.config = run.config.replace(holdout="test")
    assert run.measure("knn", "validation", transfer="cifar10")["transfer/cifar10/knn"]["k"] == 7
    with pytest.raises(UserError, match="was trained on the validation images: evaluate it on the test set"):
        run.measure("knn", "validation")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("digits", "`transfer` digits is the run's own dataset"),
        ("imagenet21", "unknown `transfer` imagenet21: choose from cifar10, "),
    ],
)
def test_a_transfer_to_nowhere_is_told(trained, name, message):
    with pytest.raises(UserError, match=message):
        trained.measure(transfer=("cifar10", name))


def test_a_folder_without_images_is_told_before_others_are_measured(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("hypersphere.runs.run.evaluate_on", lambda *a, **b: pytest.fail("measured"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no images below"):
        trained.measure(transfer=("cifar10", str(tmp_path / "empty")))


def test_what_was_found_is_shown_and_kept_even_if_the_data_are_gone(folder, monkeypatch, capsys):
    """How many updates make the run is known by its data, which may be gone when a transfer has been measured."""

    def gone(run):
        raise UserError("the data are gone")

    monkeypatch.setattr(hs.Run, "steps", property(gone))
    assert main(["evaluate", "--probes", "knn", "--device", "cpu", str(folder)]) == 0
    assert "20-NN" in capsys.readouterr().out
    assert hs.load_run(folder).evaluations["validation"].keys() == {"knn", "sphere", "labels", "random/knn"}


def test_the_table_is_shown_even_if_it_cannot_be_written(folder, capsys):
    (folder / "evaluation.json").mkdir()
    assert main(["evaluate", "--probes", "knn", "--device", "cpu", str(folder)]) == 2
    printed = capsys.readouterr()
    assert "20-NN" in printed.out
    assert "evaluation.json: Is a directory" in printed.err
    assert "evaluation.json" in printed.err.splitlines()[-1]


def test_damaged_evaluations_are_replaced(folder):
    run = hs.load_run(folder)
    record = {"hash": run.config.hash, "step": run.step, "validation": 3, "test": {"knn": {}}}
    (folder / "evaluation.json").write_text(json.dumps(record))
    found = run.evaluate("knn")
    assert run.evaluations == {**record, "validation": found}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"epochs": "3"}, "`epochs` must be a whole number"),
        ({"energy_layers": 3}, "`energy_layers`"),
        ({"data": "nothing"}, "unknown `data` 'nothing'"),
        ({"norm": {}}, "`norm` must be one of"),
        (3, ""),
    ],
)
def test_a_damaged_config_names_its_file(tmp_path, config, message):
    (tmp_path / "run.json").write_text(json.dumps({"config": config}))
    with pytest.raises(UserError, match=rf"run.json is damaged \(.*{message}"):
        hs.load_run(tmp_path)


def test_going_on_says_from_where(folder, capsys):
    def told(step):
        if step is None:
            (folder / "checkpoint.pt").unlink()
        else:
            save_checkpoint(folder / "checkpoint.pt", {**load_checkpoint(folder / "checkpoint.pt"), "step": step})
        hs.pretrain(resume=folder)
        return capsys.readouterr().err.splitlines()[0]

    assert told(5) == f"{folder}: resuming at step 5 of 8"
    assert told(8) == f"{folder}: all 8 steps are done"
    assert told(None) == f"{folder}: no checkpoint yet: starting at step 0 of 8"


def test_a_finished_run_goes_on_without_decoding_its_images(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savez("some.npz", images=np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8))
    run = hs.pretrain("byol", "some.npz", out="run", batch=16, device="cpu", **OPTIONS)
    monkeypatch.setattr(Dataset, "in_memory", None)
    capsys.readouterr()
    again = hs.pretrain(resume="run")
    assert capsys.readouterr().err == "run: all 2 steps are done\n"
    assert (again.step, again.config) == (run.step, run.config) == (2, run.config)
    for name, tensor in run.method.state_dict().items():
        assert torch.equal(again.method.state_dict()[name], tensor)


def test_a_run_that_is_no_better_than_at_its_start_says_so(trained, monkeypatch, capsys):
    for knn, told in ((80.0, 1), (70.0, 1), (80.1, 0)):
        lines = [{"step": 1, "knn": 90.0, "knn_at_start": 80.0}, {"step": 2, "knn": knn}, {"step": 3, "loss": 1.0}]
        monkeypatch.setattr(hs.runs.run.Run, "metrics", lines)
        _tell_if_no_better(trained)
        message = (
            f"byol: k-NN accuracy {knn:.1f} % is not above that of the random encoder, 80.0 %: train for more epochs"
        )
        assert capsys.readouterr().err.count(message) == told
    monkeypatch.setattr(hs.runs.run.Run, "metrics", [{"step": 1, "loss": 1.0}])
    _tell_if_no_better(trained)
    assert not capsys.readouterr().err


def test_a_run_goes_on_by_the_name_of_its_method(tmp_path, monkeypatch):
    """Of which the data set has changed some options; and by its data, from wherever."""
    small = {"batch": 16, "epochs": 1, "device": "cpu", "knn_every": 0, "progress": False}
    run = hs.pretrain(
        "simsiam", "digits", encoder=SMALL_ENCODER, hidden=32, projection=8, out=tmp_path / "digits", **small
    )
    assert hs.pretrain("simsiam", resume=run.path, progress=False).step == run.step
    with pytest.raises(UserError, match="its method is 'simsiam', not 'byol'"):
        hs.pretrain("byol", resume=run.path)
    np.savez(tmp_path / "some.npz", images=np.zeros((40, 8, 8), np.uint8))
    monkeypatch.chdir(tmp_path)
    run = hs.pretrain("byol", "some.npz", encoder=SMALL_ENCODER, hidden=8, projection=4, out="arrays", **small)
    assert hs.pretrain("byol", "some.npz", resume=run.path, progress=False).step == run.step
    rooted = hs.pretrain("byol", "digits", root="data", encoder=SMALL_ENCODER, hidden=8, out="rooted", **small)
    assert rooted.config.root == tmp_path / "data"  # from wherever it is used later


def keep(path, probe):
    for n in range(20):
        hs.load_run(path, device="cpu").keep({f"{probe}{n}": {"top1": 1.0}})


def test_what_several_evaluations_find_is_all_kept(folder):
    processes = [multiprocessing.get_context("fork").Process(target=keep, args=(folder, name)) for name in "ab"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    kept = hs.load_run(folder).evaluations["validation"]
    assert {f"{name}{n}" for name in "ab" for n in range(20)} <= kept.keys()


def test_an_unfinished_run_is_evaluated_as_such(folder, capsys):
    words = ["evaluate", str(folder), "--probes", "knn"]
    assert main(words) == 0
    assert "step" not in capsys.readouterr().out
    save_checkpoint(folder / "checkpoint.pt", {**load_checkpoint(folder / "checkpoint.pt"), "step": 5})
    assert main(words) == 0
    assert "step 5 of 8" in " ".join(capsys.readouterr().out.split())


def test_two_do_not_work_in_one_folder(folder):
    with lock_folder(folder), pytest.raises(UserError, match="is in use by another process"):
        hs.pretrain(resume=folder, progress=False)
    assert hs.pretrain(resume=folder, progress=False).step == 8


def test_mistakes_in_python_name_options_as_python_does(tmp_path):
    for options, message in (
        ({"device": "gpu"}, "`device` gpu cannot be used here: choose one of auto, cpu"),
        ({"batch": 4096}, "`batch` 4096 is more than"),
        ({"data": ["digits"]}, "`data` must be a name, .*, got list"),
    ):
        with pytest.raises(UserError, match=message) as told:
            hs.pretrain("byol", **{"data": "digits", "out": tmp_path / "run", **OPTIONS, **options})
        assert "--" not in str(told.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("method", "options", "idle"),
    [
        ("byol", {"uniformity_t": 1.0, "energy_s": 1.0, "trust": 0.1}, ["energy_s", "trust", "uniformity_t"]),
        ("byol-mhe", {"energy_s": 1.0, "tau": 0.9, "hidden": 32, "norm": "group"}, []),
        ("simclr", {"momentum": 0.8, "size": 64, "labels": "x.csv"}, ["labels", "momentum", "size"]),
        ("simclr-uni", {"uniformity_t": 3.0, "temperature": 0.2, "regularizer_weight": 2.0}, ["regularizer_weight"]),
        ("dino", {"teacher_temperature": 0.05, "tau": 0.9, "small_crops": 2, "small_side": 0.4}, []),
        ("dino", {"small_side": 0.4, "small_area": (0.1, 0.2)}, ["small_area", "small_side"]),
    ],
)
def test_options_that_change_nothing_are_known(method, options, idle):
    assert unused_options(recipe(method, "digits", **options)) == idle


def test_a_recipe_has_no_such_options():
    assert [(method, data) for method in METHODS for data in DATA if unused_options(recipe(method, data))] == []


def test_unused_options_are_told(tmp_path, capsys):
    run = hs.pretrain(
        "byol",
        data="digits",
        epochs=1,
        trust=0.1,
        encoder=SMALL_ENCODER,
        hidden=16,
        out=tmp_path / "run",
        progress=False,
    )
    assert capsys.readouterr().err.splitlines() == [
        "hypersphere: ignored option trust: no effect on byol with digits",
        "hypersphere: byol: tests/small, input 8 × 8, batch 128, 1 epoch, adamw with lr 0.008; "
        "1,137 training images, 300 held out",
    ]
    assert repr(run) == f"Run('{tmp_path}/run': byol on digits, {run.step} steps)"
