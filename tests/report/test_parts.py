"""What pages are made of: charts, neighbours, sheets of images, maps."""

import base64
import math
import re
import sys
from io import BytesIO

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from hypersphere.config import recipe
from hypersphere.data import Images
from hypersphere.report.chart import Line, Scale, fitted, panel, round_ticks
from hypersphere.report.contact_sheet import sheet_style
from hypersphere.report.density import on_circle
from hypersphere.report.embedding_map import embedding, map_of
from hypersphere.report.neighbours import nearest, neighbours
from hypersphere.report.run_data import RunData, Sample, Seen, labelled
from hypersphere.sphere import unit
from tests.tree import Tree


@settings(deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 8))
def test_ticks_are_round_and_not_many(low, length, about):
    high = low + length
    if high - low < 1e-9 * abs(low):
        return
    ticks = [value for value, _ in round_ticks(low, high, about)]
    slack = 1e-6 * (high - low)
    assert all(low - slack <= tick <= high + slack for tick in ticks)
    assert len(ticks) <= about + 1
    steps = np.diff(ticks)
    for step in steps:
        mantissa = step / 10 ** math.floor(math.log10(step) + 1e-6)
        assert min(abs(mantissa - m) for m in (1, 2, 5, 10)) < 0.1 * max(1, abs(low) / length * 1e-8)


@pytest.mark.parametrize(
    ("scale", "written"),
    [
        (Scale(-1.1, -0.4, 0, 1), "−1.0 −0.8 −0.6 −0.4"),
        (Scale(0, 4500, 0, 1), "0 1,000 2,000 3,000 4,000"),
        (Scale(0, 4e6, 0, 1), "0 1·10⁶ 2·10⁶ 3·10⁶ 4·10⁶"),
        (Scale(0.5, 2000, 0, 1, logarithmic=True), "1 3 10 30 100 300 1,000"),
        (Scale(0.5, 2e6, 0, 1, logarithmic=True), "1 10 100 1,000 10,000 1·10⁵ 1·10⁶"),
        (fitted([math.log(2), math.log(2) + 1e-9], 0, 1), "0.6925 0.6930 0.6935"),
    ],
)
def test_ticks_are_written_as_they_are(scale, written):
    assert " ".join(text for _, text in scale.ticks) == written


def test_values_up_to_the_largest_number_have_ticks():
    scale = fitted([1.0, 1e308, sys.float_info.max], 0, 1)
    assert scale.ticks[0][0] == 1.0
    assert scale.ticks[-1][0] == 1e308
    assert scale(sys.float_info.max) == 1.0


def test_a_panel_draws_values_where_its_scale_has_them():
    assert Scale(0, 10, 100, 200)(2.5) == 125
    assert Scale(1, 100, 0, 50, logarithmic=True)(10) == 25
    assert fitted([1, 100], 0, 1).logarithmic
    assert not fitted([-1, 100], 0, 1).logarithmic
    for values in ([5.0], [0.0, 0.0], [1e-9, 1e9], [3, 3, 4]):
        tree = Tree(panel("a title", "a unit", [Line("one", 0, list(enumerate(values)))]))
        places = [float(n) for a in tree.of("polyline") for n in re.split("[ ,]", a["points"])]
        assert all(math.isfinite(n) and 0 <= n <= 360 for n in places)


@pytest.fixture
def seen():
    images = Images(torch.zeros(50, 1, 8, 8, dtype=torch.uint8), torch.arange(50) % 5, tuple("abcde"))
    return Seen(Sample(images, 100, True), unit(torch.randn(50, 6)), 7)


def test_neighbours_against_a_loop(seen):
    features, labels = seen.features.double().numpy(), seen.sample.images.labels.tolist()
    found = nearest(seen)
    assert [labels[query] for query, _ in found] == [0, 1, 2, 3, 4]
    for query, others in found:
        cosines = {i: float(features[i] @ features[query]) for i in range(50) if i != query}
        assert others == sorted(cosines, key=cosines.get, reverse=True)[:6]


def test_images_without_labels_have_neighbours_and_a_map(seen):
    pixels = seen.sample.images.pixels
    unlabelled = Seen(Sample(Images(pixels, torch.full((50,), -1), ()), 100, False), seen.features, 7)
    tree = Tree(neighbours("run", unlabelled, "sheet") + map_of("run", unlabelled, "sheet"))
    assert len(tree.of("span", "query")) == 8
    assert len(tree.of("span", "unknown")) == 48
    assert tree.of("span", "same") == tree.of("span", "other") == []
    assert ": the classes are not known" in tree.said("figcaption")
    assert len(tree.of("use")) == 50
    assert tree.said("p") == ["The images have no labels."]


def test_the_plane_is_that_of_the_two_largest_moments(seen):
    x = seen.features.double()
    points, meaning = on_circle(x)
    moments, directions = torch.linalg.eigh(x.T @ x)
    torch.testing.assert_close(points.abs(), (x @ directions[:, [-1, -2]]).abs())
    assert (points.mean(0) >= 0).all()
    assert f"{float(moments[-2:].sum() / moments.sum()):.0%} of the squared length" in meaning
    flat = unit(torch.randn(9, 2))
    assert on_circle(flat)[0] is flat


@pytest.mark.parametrize(
    ("shape", "shown", "error"),
    [((1, 8, 8), 8, 0), ((3, 32, 32), 32, 60), ((3, 64, 64), 64, 60), ((3, 128, 128), 64, 60)],
)
def test_a_sheet_has_each_image_in_its_place(shape, shown, error):
    flat = torch.randint(0, 256, (40, shape[0], 1, 1), dtype=torch.uint8)
    pixels = flat.expand(40, *shape).clone()
    pixels[:, :, : shape[1] // 2] = 0
    style = sheet_style(pixels, "sheet")
    picture = Image.open(BytesIO(base64.b64decode(re.search(r"base64,([^)]*)", style)[1])))
    sheet = torch.from_numpy(np.array(picture.convert("L" if shape[0] == 1 else "RGB"))).view(
        shown * 2, shown * 32, shape[0]
    )
    for index in range(40):
        row, column = divmod(index, 32)
        part = sheet[row * shown : (row + 1) * shown, column * shown : (column + 1) * shown].float()
        assert (part[shown // 2 :] - flat[index].view(-1)).abs().max() <= error
        assert part[: shown // 2].max() <= error


def test_the_map_is_the_same_each_time_and_whole():
    groups = torch.eye(3).repeat_interleave(20, 0)
    features = unit(groups + 0.05 * torch.randn(60, 3))
    places = embedding(features)
    assert torch.equal(places, embedding(features))
    assert places.abs().max() == 1
    near = torch.cdist(places, places).fill_diagonal_(math.inf).argmin(1)
    assert ((near // 20) == torch.arange(60) // 20).all()
    for collapsed in (features[:1].repeat(30, 1), features[:3], torch.zeros(30, 3)):
        assert embedding(collapsed).isfinite().all()


GRID = [{"lr": 0.1, "seed": 0}, {"lr": 0.2, "seed": 0}, {"lr": 0.1, "seed": 1}, {"lr": 0.2, "seed": 1}]
LAYERS = [{"energy_layers": layers} for layers in (("projector",), ("projector", "predictor"))]
MANY = {"lr": 3, "tau": 0.5, "epochs": 7, "batch": 8, "hidden": 9}


@pytest.mark.parametrize(
    ("made", "names"),
    [
        ([("byol", {}), ("byol-mhe", {"lr": 3})], ["byol", "byol-mhe"]),
        ([("byol", {"seed": 3}), ("byol", {"seed": 4})], ["byol (seed 3)", "byol (seed 4)"]),
        ([("byol", {"lr": 1, "seed": 3}), ("byol", {"lr": 2, "seed": 4})], ["byol (lr 1.0)", "byol (lr 2.0)"]),
        ([("byol", some) for some in GRID], [f"byol (lr {lr}, seed {seed})" for seed in (0, 1) for lr in (0.1, 0.2)]),
        ([("byol", {}), *[("simclr", some) for some in GRID[:2]]], ["byol", "simclr (lr 0.1)", "simclr (lr 0.2)"]),
        (
            [("byol-mhe", some) for some in LAYERS],
            [f"byol-mhe (energy_layers {layers})" for layers in ("projector", "projector + predictor")],
        ),
        ([("byol", {}), ("byol", {"data": "/a/stl"})], ["byol on digits", "byol on stl"]),
        (
            [("byol", {}), ("byol", {"data": "/a/stl"}), ("byol", {"data": "/a/stl", "seed": 1})],
            ["byol on digits", "byol on stl (seed 0)", "byol on stl (seed 1)"],
        ),
        ([("byol", {}), ("byol", {"device": "cpu"})], ["byol (0)", "byol (1)"]),  # alike: by their folders
        ([("byol", {}), ("byol", MANY)], ["byol (0)", "byol (1)"]),
    ],
)
def test_runs_are_named_by_what_tells_them_apart(made, names, tmp_path):
    configs = [recipe(method, "digits").replace(**options) for method, options in made]
    runs = [RunData(tmp_path / str(n), config, {}, [], {}, None, None) for n, config in enumerate(configs)]
    assert [run.label for run in labelled(runs)] == names
