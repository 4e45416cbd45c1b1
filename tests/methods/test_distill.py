"""The student learns the direction of a frozen teacher's features, and a run of it needs the teacher to learn only."""

import copy
import shutil

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import hypersphere as hs
from hypersphere.cli import main
from hypersphere.errors import UserError
from hypersphere.methods import Batch, Distill
from hypersphere.nn import build_encoder
from hypersphere.runs import teachers
from hypersphere.views import PIPELINES, folder_pipeline
from tests.networks import SMALL_ENCODER

SMALL = {"data": "digits", "encoder": SMALL_ENCODER, "hidden": 16, "device": "cpu", "knn_every": 0, "progress": False}


def network(features):
    return nn.Sequential(nn.Flatten(), nn.Linear(12, features), nn.BatchNorm1d(features))


def batch(n=16):
    return Batch((torch.randn(n, 3, 2, 2), torch.randn(n, 3, 2, 2)), torch.arange(n), None)


def test_the_loss_is_the_cosine_with_the_centred_features_of_the_same_view():
    teacher, data = network(5), batch()
    teacher(torch.randn(50, 12) + 3)  # statistics of its own
    method = Distill(network(6), 6, teacher, teacher_features=5, hidden=8).train()
    twin, fixed = copy.deepcopy(method), copy.deepcopy(teacher).eval()
    seen = [fixed(view).double() for view in data.views]
    mean = torch.cat(seen).mean(0)
    wanted = []
    for view, features in zip(data.views, seen, strict=True):
        predicted = twin.predictor(twin.encoder(view)).double()
        wanted.append(F.cosine_similarity(predicted, features - mean).mean())
    loss = method(data).loss
    torch.testing.assert_close(loss.double(), -torch.stack(wanted).mean(), rtol=1e-5, atol=1e-6)
    loss.backward()
    assert all(p.grad is None for p in method.teacher.parameters())
    torch.testing.assert_close(method.teacher.state_dict(), teacher.state_dict())


def test_a_function_makes_a_teacher_that_is_not_saved():
    made = []
    method = Distill(network(6), 6, lambda: made.append(network(5)) or made[-1], teacher_features=5, hidden=8)
    assert not made
    method(batch())
    method(batch())
    assert len(made) == 1
    assert not any(name.startswith(("teacher", "loaded")) for name in method.state_dict())
    assert not made[0].training


def test_a_student_learns_its_teacher_and_outlives_it(tmp_path):
    teacher = hs.pretrain("simclr", **SMALL | {"hidden": 64}, epochs=4, warmup=1, out=tmp_path / "teacher")
    options = {**SMALL, "teacher": tmp_path / "teacher", "lr": 0.5}
    run = hs.pretrain("distill", **options, epochs=4, warmup=1, log_every=1, out=tmp_path / "student")
    losses = [line["distill"] for line in run.metrics if "distill" in line]
    assert losses[0] > -0.3
    assert losses[-1] < -0.8  # the cosine with the teacher
    assert run.config.teacher == str(tmp_path / "teacher")
    assert run.config.teacher_features == 32
    assert not any("teacher" in name for name in run.method.state_dict())

    half = hs.pretrain("distill", **options, epochs=2, out=tmp_path / "half")
    teacher.path.rename(tmp_path / "gone")
    images = torch.randint(0, 256, (3, 1, 8, 8), dtype=torch.uint8)
    again = hs.load_run(run.path, "cpu")
    assert torch.equal(again.encode(images), run.encode(images))
    (half.path / "checkpoint.pt").unlink()
    with pytest.raises(UserError, match=r"^`teacher` .*teacher was not found: expected the folder of a run, "):
        hs.pretrain(resume=half.path, progress=False)


def test_a_run_and_its_export_teach_the_same(tmp_path, capsys):
    run = hs.pretrain("simclr", **SMALL, epochs=1, out=tmp_path / "run")
    assert main(["export", str(run.path), "-o", str(tmp_path / "export")]) == 0
    views = torch.randn(4, 1, 8, 8)
    features = []
    for folder in ("run", "export"):
        teacher = teachers.load_teacher(str(tmp_path / folder), PIPELINES["digits"], None).eval()
        assert teachers.teacher_width(str(tmp_path / folder)) == teacher.num_features == 32
        features.append(teacher(views))
    torch.testing.assert_close(features[0], features[1])
    torch.testing.assert_close(features[0], run.encoder(views))
    shutil.rmtree(tmp_path / "export")


def test_a_teacher_sees_its_own_normalization_and_size():
    encoder = build_encoder("torchvision/resnet18").eval()
    ours, usual = PIPELINES["digits"], folder_pipeline(64)
    teacher = teachers.Teacher(encoder, (usual.mean, usual.std), (ours.mean, ours.std), size=64).eval()
    grey = torch.rand(2, 1, 64, 64)
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (usual.mean, usual.std))
    wanted = encoder((grey.expand(-1, 3, -1, -1) - mean) / std)
    found = teacher((grey - ours.mean[0]) / ours.std[0])
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert teacher(torch.rand(2, 1, 8, 8)).shape == (2, 512)


def test_mistakes_are_told_before_a_run(tmp_path):
    for teacher, told in {
        "nowhere": "`teacher` .*nowhere was not found: expected the folder of a run",
        "torchvision/resnet19": "torchvision has no model 'resnet19': did you mean 'resnet18'?",
    }.items():
        with pytest.raises(UserError, match=told):
            hs.pretrain("distill", **SMALL, teacher=teacher, epochs=1, out=tmp_path / "run")
    hs.pretrain("simclr", **SMALL, epochs=1, out=tmp_path / "teacher")
    with pytest.raises(UserError, match=r"has 32 features, but `teacher_features` is 7: leave it out"):
        hs.pretrain("distill", **SMALL, teacher=tmp_path / "teacher", teacher_features=7, epochs=1, out=tmp_path / "x")
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "x").exists()
