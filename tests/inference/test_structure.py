"""Near-duplicates, clusters and outliers of a file of embeddings, against brute force and scikit-learn."""

import re

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import NearestNeighbors

from hypersphere.cli import main
from hypersphere.inference import similarity
from hypersphere.inference.embed_to_file import embed
from hypersphere.inference.embedding_files import VectorBatch, writer
from hypersphere.inference.structure import clusters, connected, duplicates, outliers
from tests.inference.hands import told
from tests.pictures import draw

ABOUT = {"encoder": "", "weights": "", "preprocess": {}, "cwd": "/photos"}


def written(path, vectors):
    """A file of these vectors, whose images are /photos/0, /photos/1, …"""
    with writer(path, path.suffix, vectors.shape[1], ABOUT, True) as write:
        write(VectorBatch([str(n) for n in range(len(vectors))], np.asarray(vectors, np.float32)))
    return path


def number(image):
    return int(image.path.name)


@pytest.fixture
def _small_tiles(monkeypatch):
    monkeypatch.setattr(similarity, "ROWS", 7)
    monkeypatch.setattr(similarity, "COLUMNS", 11)


def drawn_vectors(n=60, dimensions=8, seed=0):
    return 3 * np.random.default_rng(seed).standard_normal((n, dimensions))


@pytest.mark.usefixtures("_small_tiles")
def test_pairs_and_neighbours_are_those_of_all_cosines():
    x = drawn_vectors()
    points = torch.nn.functional.normalize(torch.tensor(x, dtype=torch.float32), dim=1)
    cosines = points.double() @ points.double().T
    pairs, found = similarity.close_pairs(points, 0.5)
    wanted = {(i, j): float(cosines[i, j]) for i in range(60) for j in range(i + 1, 60) if cosines[i, j] >= 0.5}
    assert {tuple(pair) for pair in pairs.tolist()} == wanted.keys()
    assert len(pairs) == len(wanted) > 30
    for pair, cosine in zip(pairs.tolist(), found.tolist(), strict=True):
        assert cosine == pytest.approx(wanted[tuple(pair)], abs=1e-5)
    distances, _ = NearestNeighbors(n_neighbors=6, metric="cosine").fit(points.numpy()).kneighbors()
    np.testing.assert_allclose(similarity.nearest_cosines(points, 6), 1 - distances, atol=1e-5)
    angle = similarity.usual_nearest_angle(points)
    best = (cosines - 2 * torch.eye(60)).amax(1).arccos()
    assert angle == pytest.approx(float(best.median()), abs=1e-3)


@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.parametrize("kind", [".npz", ".parquet"])
def test_copies_are_found_whatever_their_length(tmp_path, kind):
    x = drawn_vectors(50)
    noise = 1e-3 * np.random.default_rng(1).standard_normal((4, 8))
    x = np.concatenate([x, 2 * x[[3, 3, 17]], x[[20]]]) + np.concatenate([np.zeros((50, 8)), noise])
    found = duplicates(written(tmp_path / f"x{kind}", x), device="cpu")
    assert [[number(image) for image in group] for group in found.groups] == [[3, 50, 51], [17, 52], [20, 53]]
    assert (found.pairs, found.images) == (5, 54)
    assert 0.8 < found.threshold < 0.9999
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    assert found.groups[1][0].cosine == pytest.approx(unit[17] @ unit[52], abs=1e-5)
    everything = duplicates(tmp_path / f"x{kind}", -1, device="cpu")
    assert (len(everything.groups), everything.pairs) == (1, 54 * 53 // 2)


def test_groups_are_what_pairs_connect():
    pairs = torch.tensor([[0, 4], [4, 7], [1, 2], [5, 6], [0, 7]])
    assert connected(pairs, 9) == [[0, 4, 7], [1, 2], [5, 6]]
    assert connected(pairs[:0], 9) == []


def test_clusters_are_those_of_scikit_learn_where_they_are_clear(tmp_path):
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(5), [40, 30, 20, 15, 5])
    x = (10 * np.eye(5, 12)[truth] + rng.standard_normal((110, 12))) * rng.uniform(0.5, 2, (110, 1))
    found = clusters(written(tmp_path / "x.npz", x), 5, 200, device="cpu")
    assert [one.size for one in found] == [40, 30, 20, 15, 5]
    labels = np.empty(110, int)
    for label, one in enumerate(found):
        labels[[number(image) for image in one.images]] = label
        cosines = [image.cosine for image in one.images]
        assert cosines == sorted(cosines, reverse=True)
        assert one.cohesion == pytest.approx(np.mean(cosines), abs=1e-5)
    assert adjusted_rand_score(truth, labels) == 1
    assert [len(one.images) for one in clusters(tmp_path / "x.npz", 5, 3, device="cpu")] == [3] * 5


def test_clusters_are_as_good_as_those_of_scikit_learn(tmp_path):
    x = drawn_vectors(300, 6)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    theirs = KMeans(8, n_init=5, random_state=0).fit(unit)
    centres = theirs.cluster_centers_ / np.linalg.norm(theirs.cluster_centers_, axis=1, keepdims=True)
    wanted = (unit * centres[theirs.labels_]).sum(1).mean()
    found = clusters(written(tmp_path / "x.npz", x), 8, device="cpu")
    assert sum(one.size * one.cohesion for one in found) / 300 > wanted - 0.01


@pytest.mark.usefixtures("_small_tiles")
def test_outliers_are_far_from_their_neighbours(tmp_path):
    x = np.abs(drawn_vectors(60))
    x[[5, 33]] *= -1
    found = outliers(written(tmp_path / "x.npz", x), 4, device="cpu")
    assert {number(image) for image in found[:2]} == {5, 33}
    distances, _ = NearestNeighbors(n_neighbors=10, metric="cosine").fit(x).kneighbors()
    wanted = np.sort((1 - distances).mean(1))
    np.testing.assert_allclose([image.cosine for image in found], wanted[:4], atol=1e-5)
    few = outliers(written(tmp_path / "few.npz", x[:3]), 9, device="cpu")
    assert len(few) == 3


def test_too_many_pairs_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(similarity, "MOST_PAIRS", 100)
    file = written(tmp_path / "x.npz", drawn_vectors())
    with pytest.raises(ValueError, match=r"more than 100 pairs have a cosine of at least -1.0000: raise `threshold`"):
        duplicates(file, -1, device="cpu")


def test_the_command_prints_tables_and_writes_pages(digits, tmp_path, capsys):
    paths = draw(tmp_path / "pictures", 12)
    copy = paths[2].with_name("copy of it.png")
    copy.write_bytes(paths[2].read_bytes())
    file = tmp_path / "out.npz"
    embed(digits, tmp_path / "pictures", file, device="cpu")
    capsys.readouterr()
    for words, first, last in (
        (
            ["--duplicates"],
            "2 images:",
            r"1 group of near-duplicates with 2 of 13 images, 1 pair with a cosine of at le",
        ),
        (["--clusters", "3", "--count", "2"], "cluster 1: ", r"  [01]\.\d{4}  "),
        (["--outliers", "3"], "outliers:", r"  0\.\d{4}  "),
    ):
        page = tmp_path / f"{words[0]}.html"
        assert main(["neighbours", str(file), *words, "--device", "cpu", "--page", str(page)]) == 0
        printed = capsys.readouterr().out.splitlines()
        assert printed[0].startswith(first)
        assert re.match(last, printed[-2])
        assert printed[-1] == f"written to {page}: open it in a browser"
        html = page.read_text()
        shown = [line.split("  ")[-1] for line in printed if line.startswith("  ")]
        assert len(shown) == html.count("url(data:image/png;base64,") == html.count('<a href="file:///')
        assert all(name in html for name in shown)
        if words == ["--duplicates"]:
            assert set(shown) == {str(paths[2]), str(copy)}
            assert copy.as_uri() in html


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "missing argument QUERY: hypersphere neighbours FILE [QUERY …]"),
        (["a.png", "--duplicates"], "pass either QUERY or one of --duplicates, --clusters, --outliers, not several"),
        (["--clusters", "2", "--outliers", "2"], "not several"),
        (["--clusters", "0"], "--clusters must be at least 1, got 0"),
        (["--clusters", "70"], "has 60 images: at least 70 are needed"),
        (["--outliers", "0"], "--outliers must be at least 1, got 0"),
        (["--duplicates", "--threshold", "2"], "--threshold must be a cosine, from -1 to 1, got 2.0"),
        (["--outliers", "2", "--threshold", "0.9"], "--threshold applies to --duplicates only: remove it"),
        (["--threshold", "0.9"], "--threshold applies to --duplicates only: pass it, too"),
    ],
)
def test_mistakes(words, message, tmp_path, capsys):
    file = written(tmp_path / "x.npz", drawn_vectors())
    assert message in told(capsys, "neighbours", file, *words, "--device", "cpu")


def test_a_run_is_no_file_of_embeddings(tmp_path, capsys):
    assert f"{tmp_path} is a folder, not a file of embeddings: expected" in told(
        capsys, "neighbours", tmp_path, "a.png"
    )
    (tmp_path / "run.json").touch()
    advice = f"embed images first, as in hypersphere embed {tmp_path} IMAGES --out photos.npz"
    assert advice in told(capsys, "neighbours", tmp_path, "a.png")


def test_equal_images_alone(tmp_path):
    """The usual angle is 0 then, and rounding must not hide them."""
    x = np.repeat(drawn_vectors(3, 100), 4, axis=0)
    found = duplicates(written(tmp_path / "x.npz", x), device="cpu")
    assert [len(group) for group in found.groups] == [4, 4, 4]
    assert found.threshold == pytest.approx(0.9999)
