"""Runs, exports, embeddings and results that version 0.1.0 wrote, read and continued by the present one."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import hypersphere as hs
from hypersphere.inference.embed_to_file import embed
from hypersphere.inference.neighbours import neighbours
from hypersphere.nn import build_encoder
from hypersphere.runs.build import build_method
from hypersphere.runs.recipes import recipe_for
from hypersphere.runs.results import read_results
from hypersphere.util.trust import trust
from tests.networks import those_of

WRITTEN = Path(__file__).parents[1] / "fixtures/v0.1.0"
THERE = "/tmp/v0.1.0"  # where the fixtures were when they were made
ON_DIGITS = ("byol-mhe", "moco", "supervised", "swav", "dino")
QUERIES = [f"pictures/red/{n:02}.png" for n in (0, 2, 4)]


@pytest.fixture
def there(tmp_path, monkeypatch):
    """A copy of the fixtures, which is the current folder and trusted. Their encoder can be imported."""
    folder = Path(shutil.copytree(WRITTEN, tmp_path / "v0.1.0"))
    monkeypatch.syspath_prepend(WRITTEN)
    monkeypatch.chdir(folder)
    trust(folder)
    return folder


@pytest.fixture(scope="module")
def expected():
    """Features of `QUERIES`, and the weights of the runs that were interrupted, when they are finished."""
    with np.load(WRITTEN / "expected.npz") as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def same_machine():
    """Whether rounding is that of the machine which made the fixtures."""
    made_with = json.loads((WRITTEN / "made_with.json").read_text())
    cpu = Path("/proc/cpuinfo")
    known = cpu.is_file() and f": {made_with.pop('model')}\n" in cpu.read_text()
    return known and made_with == {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()}


def assert_close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ON_DIGITS)
def test_a_finished_run_on_digits(there, expected, name):
    run = hs.load_run(there / name, "cpu")
    record = json.loads((there / name / "run.json").read_text())
    assert run.config.hash == record["hash"]
    assert run.step == run.steps == 16
    assert len(run.metrics) == len((there / name / "metrics.jsonl").read_text().splitlines())
    assert_close(hs.load(there / name, "cpu").encode(QUERIES), expected[name])
    assert torch.equal(
        torch.nn.utils.parameters_to_vector(hs.pretrain(resume=there / name, progress=False).encoder.parameters()),
        torch.nn.utils.parameters_to_vector(run.encoder.parameters()),
    )


def test_an_evaluation(there):
    run = hs.load_run(there / "byol-mhe", "cpu")
    before = json.loads((there / "byol-mhe/evaluation.json").read_text())
    assert run.evaluations == before
    assert run.evaluations["validation"]["knn"]["top1"] == pytest.approx(69.667, abs=1e-3)
    found = run.evaluate(("knn",))
    known = before["validation"]["knn"]
    assert {name: found["knn"][name] for name in known} == pytest.approx(known, abs=0.5)
    after = hs.load_run(there / "byol-mhe", "cpu").evaluations
    assert after == {**before, "validation": {**before["validation"], **found}}
    if same_machine():
        sphere = before["validation"]["sphere"]  # the effective rank is more accurate today
        assert after["validation"]["sphere"]["effective_rank"] == pytest.approx(sphere["effective_rank"], rel=1e-5)
        sphere["effective_rank"] = after["validation"]["sphere"]["effective_rank"]
        known["top1_of_200"] = after["validation"]["knn"]["top1_of_200"]  # new
        assert after == before
    card = json.loads((hs.export(there / "byol-mhe", there / "new") / "card.json").read_text())
    assert card["metrics"] == {holdout: after[holdout] for holdout in ("validation", "test")}


@pytest.mark.parametrize("resumed", [False, True])
def test_a_run_on_a_folder_that_has_moved(there, expected, resumed):
    assert_close(hs.load(there / "on-folder", "cpu").encode(QUERIES), expected["on-folder"])
    run = hs.load_run(there / "on-folder", "cpu", root=there / "pictures")
    if resumed:
        run = hs.pretrain(resume=run.path, root=there / "pictures", progress=False)
    assert run.labelled
    assert run.steps == run.step == 4
    assert run.evaluate(("knn",))["knn"]["top1"] == 100
    assert hs.diagnose(run.path, root=there / "pictures", device="cpu").numbers["alignment"] > 0


@pytest.mark.parametrize("name", ["on-arrays", "on-function"])
def test_a_run_on_arrays(there, expected, name):
    assert_close(hs.load(there / name, "cpu").encode(QUERIES), expected[name])
    run = hs.load_run(there / name, "cpu")
    assert run.labelled
    if name == "on-arrays":  # its file is not where it was
        run.config = run.config.replace(data=str(there / "images.npz"))
    assert run.step == run.steps
    assert run.measure(("knn",))["knn"] == pytest.approx(run.evaluations["validation"]["knn"], abs=1e-6)


@pytest.mark.parametrize("name", ["interrupted", "interrupted-on-folder"])
def test_an_interrupted_run_ends_with_the_same_weights(there, expected, name):
    wanted = {key.partition("/")[2]: weight for key, weight in expected.items() if key.startswith(f"{name}/")}
    root = there / "pictures" if name == "interrupted-on-folder" else None
    begun = hs.load_run(there / name, "cpu", root=root)
    assert 0 < begun.step < begun.steps
    assert begun.step % (begun.steps // begun.config.epochs)  # in the middle of an epoch
    run = hs.pretrain(resume=there / name, root=root, progress=False)
    assert run.step == run.steps
    found = run.encoder.state_dict()
    assert found.keys() == wanted.keys()
    assert len(wanted) == 12
    for key, weight in wanted.items():
        assert not torch.equal(weight, begun.encoder.state_dict()[key])
        if same_machine():
            assert torch.equal(found[key], weight), key
        else:  # rounding is another, and each update adds to it
            torch.testing.assert_close(found[key], weight, rtol=0.02, atol=0.02)
    if same_machine():
        assert_close(hs.load(there / name, "cpu").encode(QUERIES), expected[name])


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_an_exported_encoder_and_its_embeddings(there, expected, suffix):
    before = there / f"embeddings.{suffix}"
    assert_close(hs.load(there / "exported", "cpu").encode(QUERIES), expected["on-folder"])
    assert embed(there / "exported", "pictures", there / f"new.{suffix}", device="cpu").images == 24
    old, new = (hs.diagnose(file).numbers for file in (before, there / f"new.{suffix}"))
    assert old == pytest.approx(new, rel=1e-4)
    shutil.copytree(there / "pictures", there / "unknown")
    (found,) = neighbours(before, ["unknown/red/02.png"], count=1, encoder=there / "exported", device="cpu")
    assert found.neighbours[0].path == Path(THERE, "pictures/red/02.png")
    assert found.neighbours[0].cosine == pytest.approx(1, abs=1e-5)
    (found,) = neighbours(before, [f"{THERE}/pictures/red/02.png"], count=3)
    assert [one.path.parent.name for one in found.neighbours] == ["red", "red", "red"]


def test_the_results_of_a_sweep(there):
    """The same sweep runs nothing again."""
    files = {file.name: file.read_bytes() for file in (there / "sweep/results").iterdir()}
    read = read_results(there / "sweep/results")
    assert sorted(result.file for result in read) == sorted(files)
    options = {"encoder": "tiny_encoder:tiny", "hidden": 8, "projection": 4}
    over = {"lr": [0.008, 1e30], "seed": [0, 1]}
    results = hs.sweep("byol", "digits", over=over, probes=("knn",), epochs=1, out="sweep", workers=1, **options)
    assert [path.name for path in (there / "sweep").iterdir()] == ["results"]
    assert {file.name: file.read_bytes() for file in (there / "sweep/results").iterdir()} == files
    values = [(result.config.lr, result.config.seed) for result in results]
    assert values == [(0.008, 0), (1e30, 0), (0.008, 1), (1e30, 1)]
    assert [result.diverged is None for result in results] == [True, False, True, False]
    assert results[0].evaluation["knn"]["top1"] == json.loads(files[results[0].file])["evaluation"]["knn"]["top1"]


def shapes(module):
    return {name: list(tensor.shape) for name, tensor in module.state_dict().items()}


def test_encoders_and_methods_have_the_same_weights():
    """Checkpoints of networks that are too large to keep here would load, too."""
    known = json.loads((WRITTEN / "states.json").read_text())
    for name, state in known.items():
        encoder, _, norm = name.partition(" ")
        if norm:
            assert shapes(build_encoder(encoder, stem="cifar", norm=norm)) == state, name
        else:
            config = recipe_for(name, "digits", **those_of(name, hidden=8, projection=4, queue=64, prototypes=8))
            assert shapes(build_method(config, 1, 10)) == state, name
    assert len(known) == 12 + 11  # encoders, and the methods of version 0.1.0
