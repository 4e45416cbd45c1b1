"""Checkpoints whose bytes have changed on the disk: noticed, and the one before takes their place."""

import random
import shutil
import zipfile

import pytest
import torch

import hypersphere as hs
from hypersphere.errors import UserError
from hypersphere.train import load_checkpoint, save_checkpoint
from hypersphere.train.checkpoint import latest_checkpoint, remove_previous
from hypersphere.util.run_files import CHECKPOINT, PREVIOUS
from tests.networks import SMALL_ENCODER

OPTIONS = {"encoder": SMALL_ENCODER, "epochs": 2, "hidden": 32, "projection": 8, "knn_every": 0, "progress": False}


def state(step, size=60):
    made = torch.Generator().manual_seed(step)
    weights = {name: torch.randn(size, size, generator=made) for name in ("encoder.a", "encoder.b")}
    return {"hash": "a1", "step": step, "seconds": 0.5, "method": weights, "optimizer": {"m": torch.zeros(size)}}


def same(found, wanted):
    tensors = all(torch.equal(found["method"][name], tensor) for name, tensor in wanted["method"].items())
    return (
        tensors and torch.equal(found["optimizer"]["m"], wanted["optimizer"]["m"]) and found["step"] == wanted["step"]
    )


@pytest.mark.parametrize("zeros", [0, 1, 512])
def test_damage_anywhere_is_noticed_or_harmless(tmp_path, zeros):
    """A flipped bit, or a block of zeros: torch alone loads other weights without a word."""
    file, wanted, draw = tmp_path / CHECKPOINT, state(3), random.Random(zeros)
    save_checkpoint(file, wanted)
    whole, noticed = file.read_bytes(), 0
    with zipfile.ZipFile(file) as archive:
        inside = [info.header_offset for info in archive.infolist()]
    for place in [draw.randrange(len(whole)) for _ in range(150)] + [start + 100 for start in inside]:
        damaged = bytearray(whole)
        part = bytes(zeros) if zeros else bytes([damaged[place] ^ (1 << draw.randrange(8))])
        damaged[place : place + len(part)] = part[: len(damaged) - place]
        if damaged == whole:
            continue
        file.write_bytes(damaged)
        try:
            assert same(load_checkpoint(file), wanted)  # between the tensors
        except UserError as error:
            noticed += "is damaged" in str(error)
    assert noticed > 100


def test_the_one_before_is_kept_and_used(tmp_path, capsys):
    assert latest_checkpoint(tmp_path) is None
    file = tmp_path / CHECKPOINT
    for step in (1, 2, 3):
        save_checkpoint(file, state(step))
    assert sorted(path.name for path in tmp_path.iterdir()) == [PREVIOUS, CHECKPOINT]
    assert latest_checkpoint(tmp_path)["step"] == 3
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(UserError, match=r"`resume` continues from the checkpoint before"):
        load_checkpoint(file)
    assert same(latest_checkpoint(tmp_path), state(2))
    assert "using the checkpoint before it, of step 2" in capsys.readouterr().err
    save_checkpoint(file, state(4))
    assert latest_checkpoint(tmp_path)["step"] == 4
    file.unlink()
    (tmp_path / PREVIOUS).write_bytes(b"")
    with pytest.raises(UserError, match=r"checkpoint.previous.pt is damaged \(.*\): `resume` starts again if you"):
        latest_checkpoint(tmp_path)


def test_without_hard_links(tmp_path, monkeypatch):
    def refuse(*paths):
        raise PermissionError("no links here")

    monkeypatch.setattr("os.link", refuse)
    for step in (1, 2):
        save_checkpoint(tmp_path / CHECKPOINT, state(step))
    assert [load_checkpoint(tmp_path / name)["step"] for name in (PREVIOUS, CHECKPOINT)] == [1, 2]


def test_a_finished_run_keeps_one_checkpoint(tmp_path):
    run = hs.pretrain("byol", "digits", out=tmp_path / "run", device="cpu", save_every=1, **OPTIONS)
    assert [file.name for file in sorted(run.path.glob("checkpoint*"))] == [CHECKPOINT]


@pytest.mark.parametrize(("damage", "step", "left"), [(False, 2, [CHECKPOINT]), (True, 2, 2), (False, 3, 2)])
def test_the_checkpoint_before_goes_only_if_the_last_one_is_whole(tmp_path, damage, step, left):
    for number in (1, 2):
        save_checkpoint(tmp_path / CHECKPOINT, state(number))
    if damage:
        (tmp_path / CHECKPOINT).write_bytes(b"damaged")
    remove_previous(tmp_path / CHECKPOINT, step)
    kept = sorted(file.name for file in tmp_path.iterdir())
    assert kept == left or len(kept) == left


def test_a_run_whose_checkpoint_is_damaged_ends_as_the_others_do(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("hypersphere.runs.training.remove_previous", lambda path, step: None)  # killed before that
    whole = hs.pretrain("byol", "digits", out=tmp_path / "whole", device="cpu", save_every=1, **OPTIONS)
    damaged = shutil.copytree(whole.path, tmp_path / "damaged")
    content = bytearray((damaged / CHECKPOINT).read_bytes())
    (damaged / CHECKPOINT).write_bytes(content[: len(content) // 2] + bytes(4096) + content[len(content) // 2 + 4096 :])
    with pytest.raises(UserError, match=r"checkpoint.pt is damaged \(.*\): `resume` continues"):
        hs.load_run(damaged)
    resumed = hs.pretrain(resume=damaged, progress=False)
    assert f"of step {whole.step - 1}" in capsys.readouterr().err
    assert resumed.step == whole.step
    for name, tensor in whole.method.state_dict().items():
        assert torch.equal(resumed.method.state_dict()[name], tensor), name
    assert (damaged / "metrics.jsonl").read_text() == (whole.path / "metrics.jsonl").read_text()
