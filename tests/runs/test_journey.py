"""From a folder of pictures to an encoder that loads anywhere, by the command line alone."""

import json
import os
import sys

import numpy as np
import torch
from PIL import Image

import hypersphere as hs
from hypersphere.cli import main
from tests.pictures import draw


def in_plain_torchvision(card, picture):
    """By the lines of the card, its preprocessing by PIL and torch alone."""
    names: dict = {}
    for line in card["load"]["torchvision"]:
        exec(line, names)
    model, about = names["model"].eval(), card["input"]
    image = Image.open(picture).convert("RGB")
    short = min(image.size)
    left, top = (image.width - short) / 2, (image.height - short) / 2
    image = image.resize((about["resize"],) * 2, Image.BICUBIC, box=(left, top, left + short, top + short))
    edge = round((about["resize"] - about["crop"]) / 2)
    pixels = np.asarray(image)[edge : edge + about["crop"], edge : edge + about["crop"]].astype(np.float32) / 255
    x = torch.from_numpy((pixels - np.float32(about["mean"])) / np.float32(about["std"])).permute(2, 0, 1)[None]
    with torch.no_grad():
        return model(x)[0]


def test_from_a_folder_to_plain_torchvision(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = draw(tmp_path / "photos", 100)
    broken = {"empty.png": b"", "text.jpg": b"no picture", "cut.jpg": paths[0].read_bytes()[:200]}
    for name, content in broken.items():
        (tmp_path / "photos" / name).write_bytes(content)
    small = ["--epochs=1", "--size=32", "--stem=imagenet", "--hidden=64", "--projection=16", "--device=cpu"]
    assert main(["pretrain", "byol-mhe", "--data", "photos", *small, "--out", "run"]) == 0
    told = capsys.readouterr().err
    assert "103 images" in told
    assert "3 files could not be read" in told

    assert main(["embed", "run", "photos", "-o", "photos.parquet", "--device", "cpu"]) == 0
    assert "100 images, 512 numbers each; 3 unreadable" in capsys.readouterr().out

    query = next(path for path in paths if path.suffix == ".png")
    near = ["neighbours", "photos.parquet", str(query), "--count", "5", "--page", "near.html"]
    assert main([*near, "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert sum(".png" in line or ".jpg" in line for line in shown.splitlines()) >= 5
    assert "data:image/png" in (tmp_path / "near.html").read_text()

    assert main(["export", "run", "--out", "card"]) == 0
    with monkeypatch.context() as alone:
        alone.chdir("card")
        alone.setitem(sys.modules, "hypersphere", None)  # importing it fails
        plain = in_plain_torchvision(json.loads((tmp_path / "card/card.json").read_text()), query)
    for source in ("run", "card"):
        torch.testing.assert_close(hs.load(source, "cpu").encode([Image.open(query)])[0], plain, rtol=1e-4, atol=1e-4)
    from pyarrow import parquet

    rows = parquet.read_table("photos.parquet").to_pydict()
    kept = dict(zip((os.path.basename(path) for path in rows["path"]), rows["vector"], strict=True))
    torch.testing.assert_close(torch.tensor(kept[query.name]), plain, rtol=1e-4, atol=1e-4)
