"""Runs on a folder of pictures that has moved since, and where else a root is said."""

import json
import shutil

import numpy as np
import pytest
import torch

import hypersphere as hs
from hypersphere.cli import main
from hypersphere.errors import UserError
from hypersphere.inference.exporting import export
from hypersphere.report.run_data import read_run_data, sample_of
from hypersphere.util.trust import trust
from tests.folders import SMALL, weights
from tests.processes import without_privileges


def test_a_folder_that_has_moved(folder, tmp_path, capsys):
    """Everything goes on with it as if it were where it was."""
    run = hs.pretrain("byol", data=str(folder), out=tmp_path / "run", **SMALL)
    found, seen = run.evaluate(("knn",)), read_run_data(run.path, "cpu", None).seen
    diagnosed, listed = hs.diagnose(run), (run.path / "files.json").read_bytes()
    now = folder.rename(tmp_path / "elsewhere")
    told = f"{run.path}: none of its 32 images exists, such as {folder}/"
    for words in (["pretrain", "--resume"], ["evaluate"], ["diagnose"]):
        capsys.readouterr()
        assert main([*words, str(run.path), "--device", "cpu"]) == 2
        *_, line = capsys.readouterr().err.splitlines()
        assert told in line
        assert line.endswith(f"if {folder} has moved, pass its new location as --root")
    sample_of.cache_clear()
    assert any(told in line for line in read_run_data(run.path, "cpu", None).missing)

    again = ["evaluate", str(run.path), "--device", "cpu", "--probes", "knn", "--again", "--root"]
    assert main([*again, str(now)]) == 0
    assert hs.load_run(run.path).evaluations["validation"].items() >= found.items()
    assert hs.load_run(run.path, "cpu", root=now).evaluate(("knn",)) == found
    assert hs.diagnose(run.path, root=now, device="cpu").findings == diagnosed.findings
    assert torch.equal(read_run_data(run.path, "cpu", now).seen.features, seen.features)
    (run.path / "checkpoint.pt").unlink()
    went_on = hs.pretrain(resume=run.path, root=now, progress=False)
    assert torch.equal(weights(went_on), weights(run))
    assert (run.path / "files.json").read_bytes() == listed

    (now / "red/00.jpg").unlink()
    assert main([*again, str(now)]) == 0  # as where nothing has moved
    capsys.readouterr()
    assert main([*again, str(now / "red")]) == 2
    told = f"none of its 32 images exists, such as {now}/red/"
    assert f"--root {now}/red is not the new location of {folder}: {told}" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"its data is .* if the images have moved there, pass it as `root`"):
        hs.pretrain(resume=run.path, data=str(now))


def test_a_root_that_an_older_run_kept_is_no_move(folder, tmp_path):
    run = hs.pretrain("byol", data=str(folder), out=tmp_path / "run", **{**SMALL, "knn_every": 0})
    record = json.loads((run.path / "run.json").read_text())
    record["config"]["root"] = "somewhere"
    (run.path / "run.json").write_text(json.dumps(record))
    trust(run.path)
    assert hs.load_run(run.path, "cpu").evaluate("knn") == run.evaluate("knn")
    assert hs.diagnose(run.path, device="cpu").findings == hs.diagnose(run).findings
    assert read_run_data(run.path, "cpu", None).seen
    hs.pretrain(resume=run.path, progress=False)


def test_a_report_looks_elsewhere_only_for_what_has_moved(folder, tmp_path):
    runs = []
    for name in ("stays", "goes"):
        shutil.copytree(folder, tmp_path / name)
        runs.append(hs.pretrain("byol", data=tmp_path / name, out=tmp_path / f"run-{name}", **SMALL).path)
    np.savez(tmp_path / "a.npz", images=np.zeros((40, 16, 16), np.uint8))
    runs.append(hs.pretrain("byol", data=tmp_path / "a.npz", out=tmp_path / "arrays", **SMALL).path)
    stays, goes, arrays = (read_run_data(run, "cpu", None).seen.sample.images.pixels for run in runs)
    now = (tmp_path / "goes").rename(tmp_path / "gone")
    for path in now.glob("*/*.*"):
        path.write_bytes((folder / "blue/01.png").read_bytes())
    sample_of.cache_clear()
    found = [read_run_data(run, "cpu", now).seen.sample.images.pixels for run in runs]
    assert torch.equal(found[0], stays)
    assert not torch.equal(found[1], goes[: len(found[1])])
    assert torch.equal(found[2], arrays)


def test_an_exported_encoder_of_a_folder_that_has_moved(folder, tmp_path, monkeypatch):
    run = hs.pretrain("byol", data=str(folder), out=tmp_path / "run", **{**SMALL, "knn_every": 0})
    exported = export(run.path, tmp_path / "exported")
    before = hs.diagnose(exported, device="cpu")
    folder.rename(tmp_path / "elsewhere")
    monkeypatch.setenv("HOME", str(tmp_path))
    for root in (tmp_path / "elsewhere", "~/elsewhere"):
        assert hs.diagnose(exported, root=root, device="cpu").findings == before.findings
        assert hs.diagnose(run.path, root=root, device="cpu").findings == before.findings
    with pytest.raises(UserError, match=r"folder not found: .*nowhere"):
        hs.diagnose(exported, root=tmp_path / "nowhere", device="cpu")


def test_images_that_may_not_be_read_have_not_moved(folder, tmp_path):
    run = hs.pretrain("byol", data=str(folder), out=tmp_path / "run", **{**SMALL, "knn_every": 0}).path
    evaluate = ["evaluate", run, "--device", "cpu", "--probes", "knn"]
    split = shutil.copytree(folder, tmp_path / "split/train").parent
    shutil.copytree(folder, split / "test")
    for closed in (folder, split / "test/blue"):
        closed.chmod(0)
    found = without_privileges(evaluate, [*evaluate, "--root", split / "train"], ["pretrain", "byol", "--data", split])
    for closed in (folder, split / "test/blue"):
        closed.chmod(0o700)
    assert [each.returncode for each in found] == [2, 0, 2], found[1].stderr
    assert f"permission denied for {folder}/" in found[0].stderr
    assert f"train and test must have the same class folders; {split}/test/blue/ could not be read" in found[2].stderr


def test_where_a_root_means_nothing(folder, tmp_path, capsys):
    np.savez(tmp_path / "a.npz", images=np.zeros((40, 16, 16), np.uint8))
    for data in (folder, tmp_path / "a.npz"):
        with pytest.raises(UserError, match="`root` has no effect on"):
            hs.pretrain("byol", data=data, root=tmp_path, **SMALL)
    run = hs.pretrain("byol", data=tmp_path / "a.npz", out=tmp_path / "run", **{**SMALL, "knn_every": 0})
    for command in ("evaluate", "diagnose"):
        assert main([command, str(run.path), "--root", str(tmp_path)]) == 2
        assert "--root has no effect on" in capsys.readouterr().err
    with pytest.raises(UserError, match="`root` has no effect on"):
        hs.pretrain(resume=run.path, root=tmp_path)
