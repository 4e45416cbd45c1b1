"""Whatever a file holds, commands end with status 0 or one line. `make fuzz` tries all changes, `make test` some."""

import os
import random
import traceback

import numpy as np
import pytest

from hypersphere.cli import main
from tests.folders import draw
from tests.fuzz.limits import limited
from tests.fuzz.tampering import Change, apply, changes
from tests.networks import SMALL_ENCODER

SECONDS = 30  # after which a command counts as hanging
SOME = 40  # changes that `make test` tries


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run on a folder of images, its export, and embeddings made with it."""
    folder = tmp_path_factory.mktemp("made")
    for n in range(24):
        draw(folder / "images" / ("red", "blue")[n % 2] / f"{n:02}.png", n, (200, 20, 20) if n % 2 else (20, 20, 200))
    run, small = str(folder / "run"), ["--encoder", SMALL_ENCODER, "--size", "32", "--hidden", "8", "--projection", "4"]
    (folder / "vectors").mkdir()
    images = str(folder / "images")
    assert main(["pretrain", "byol", "--data", images, "--out", run, "--epochs", "2", "--batch", "8", *small]) == 0
    assert main(["evaluate", run, "--probes", "knn"]) == 0
    assert main(["export", run, "--out", str(folder / "export")]) == 0
    assert main(["embed", run, images, "-o", str(folder / "vectors" / "vectors.npz")]) == 0
    return folder


def commands(change: Change, folder, made, tmp_path):
    image = str(made / "images" / "red" / "01.png")
    if change.folder == "run":
        yield ["evaluate", str(folder), "--probes", "knn", "--trust"]
        yield ["diagnose", str(folder), "--trust"]
        yield ["report", str(folder), "--out", str(tmp_path / "page.html"), "--trust"]
        yield ["pretrain", "--resume", str(folder)]
    elif change.folder == "export":
        yield ["embed", str(folder), str(made / "images" / "red"), "-o", str(tmp_path / "out.npz"), "--trust"]
    else:
        yield ["neighbours", str(folder / "vectors.npz"), image, "--trust"]
        yield ["diagnose", str(folder / "vectors.npz")]


def test_changed_values_are_told_in_one_line(made, tmp_path, capsys):
    every = changes(made)
    chosen = every if os.environ.get("FUZZ") == "all" else random.Random(0).sample(every, SOME)
    failures, refused = [], 0
    for number, change in enumerate(chosen):
        target = tmp_path / str(number)
        folder = apply(change, made, target)
        for words in commands(change, folder, made, target):
            try:
                with limited(SECONDS):
                    status = main(words)
            except BaseException:
                status = traceback.format_exc()
            err = capsys.readouterr().err
            refused += status == 2
            lines = [line for line in err.splitlines() if line.startswith("hypersphere: ")]
            if status not in (0, 2) or "Traceback" in err or (status == 2 and not lines):
                failures.append(f"{change} {words[0]}: {status}\n{err}")
            out = target / "out.npz"
            if out.exists():
                assert np.isfinite(np.load(out)["vector"]).all(), change
    print(f"{len(chosen)} changes, {refused} commands refused, {len(failures)} failures")
    assert not failures, "\n\n".join(failures)
    assert refused > len(chosen) // 4
