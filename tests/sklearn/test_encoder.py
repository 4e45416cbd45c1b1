"""hs.sklearn.Encoder in pipelines, searches and the checks of scikit-learn."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

import hypersphere as hs
from hypersphere.errors import UserError
from hypersphere.sklearn import Encoder
from tests.pictures import draw, untrained

SMALL = {"encoder": "hypersphere/digits", "size": 8, "epochs": 1, "device": "cpu", "options": {"hidden": 16}}


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("runs") / "digits", "digits")


@pytest.fixture(scope="module")
def fitted(digits):
    return Encoder("simclr", **SMALL).fit(digits[0][:200])


def test_a_finished_encoder_gives_its_features(run, digits):
    X = digits[0][:20]
    encoder = Encoder(source=run, device="cpu")
    squares = clone(encoder).fit_transform(X.reshape(-1, 8, 8))
    assert np.array_equal(encoder.fit(X).transform(X), squares)
    pixels = torch.from_numpy((X / 16 * 255).round().astype(np.uint8)).view(-1, 1, 8, 8)
    wanted = hs.load(run, "cpu").encode(pixels)
    np.testing.assert_allclose(encoder.transform(X), wanted, atol=1e-5)
    assert encoder.get_feature_names_out()[:2].tolist() == ["encoder0", "encoder1"]
    assert encoder.n_features_in_ == 64
    unit = Encoder(source=run, device="cpu", normalize=True).fit_transform(X)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-5)


def test_paths_are_embedded(run, tmp_path):
    paths = draw(tmp_path, 4)
    wanted = hs.load(run, "cpu").encode(paths)
    for given in (paths, [str(path) for path in paths], np.array([str(path) for path in paths])):
        np.testing.assert_array_equal(Encoder(source=run, device="cpu").fit(given).transform(given), wanted)
        with pytest.raises(UserError, match=r"^paths of images need .*: pass `source`"):
            Encoder().fit(given)


def test_fit_trains_on_all_images_and_is_repeatable(fitted, digits, tmp_path):
    again = Encoder("simclr", **SMALL, out=tmp_path / "run").fit(digits[0][:200])
    np.testing.assert_array_equal(again.transform(digits[0][:5]), fitted.transform(digits[0][:5]))
    kept = hs.load_run(tmp_path / "run")
    assert kept.written_by["training_images"] == 200
    assert (kept.config.batch, kept.config.epochs, kept.config.hidden) == (32, 1, 16)
    other = Encoder("simclr", **SMALL, random_state=1).fit(digits[0][:200])
    assert not np.allclose(other.transform(digits[0][:5]), fitted.transform(digits[0][:5]))


def test_it_can_be_cloned_and_pickled(fitted, digits):
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        fresh.transform(digits[0][:5])
    restored = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(restored.transform(digits[0][:5]), fitted.transform(digits[0][:5]))


def test_grid_search_over_a_pipeline(digits):
    X, y = (part[:120] for part in digits)
    pipeline = make_pipeline(Encoder("simclr", **SMALL), LogisticRegression(max_iter=5000))
    search = GridSearchCV(pipeline, {"encoder__lr": [1e-3, 1e-2]}, cv=2, error_score="raise").fit(X, y)
    assert search.best_params_["encoder__lr"] in (1e-3, 1e-2)
    assert search.predict(X).shape == (120,)


def test_labels_are_for_supervised_training(digits):
    X, y = (part[:64] for part in digits)
    assert Encoder("supervised", **{**SMALL, "options": None}).fit(X, y).transform(X).shape == (64, 128)
    with pytest.raises(UserError, match="labels"):
        Encoder("supervised", **{**SMALL, "options": None}).fit(X)


def test_shapes_and_values_of_images(run):
    uint8 = np.random.default_rng(0).integers(0, 256, (6, 12, 9, 3), dtype=np.uint8)
    uint8[0, 0, 0, :2] = 0, 255  # so that the range of the floats is the same
    wanted = Encoder(source=run, device="cpu").fit(uint8).transform(uint8)
    rows = Encoder(source=run, device="cpu", image_shape=(12, 9, 3)).fit(uint8.reshape(6, -1))
    np.testing.assert_array_equal(rows.transform(uint8.reshape(6, -1)), wanted)
    floats = Encoder(source=run, device="cpu").fit(uint8 / 255 - 3)
    np.testing.assert_allclose(floats.transform(uint8 / 255 - 3), wanted, atol=1e-4)
    with pytest.raises(ValueError, match="rows of 324 numbers are no images of shape 12 × 9: pass `image_shape`"):
        Encoder(source=run, image_shape=(12, 9)).fit(uint8.reshape(6, -1))
    with pytest.raises(ValueError, match="NaN"):
        rows.transform(np.full((2, 324), np.nan))


class OfTables(Encoder):
    """Takes rows of any length, as the checks have them: filled up with zeros to a square. Nothing else differs."""

    def _shape(self, pixels):
        side = int(np.ceil(np.sqrt(pixels)))
        return side, side

    def _pixels(self, X):
        if X.ndim == 2:
            side = self._shape(X.shape[1])[0]
            X = np.pad(X, ((0, 0), (0, side**2 - X.shape[1])))
        return super()._pixels(X)


def test_the_checks_of_scikit_learn(run):
    if not hasattr(estimator_checks, "estimator_checks_generator"):
        pytest.skip("of scikit-learn 1.6 and newer")
    estimator = OfTables(source=str(run), device="cpu")
    results = estimator_checks.check_estimator(estimator, on_skip=None, on_fail=None)
    failed = {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    assert not failed
    passed = [result["check_name"] for result in results if result["status"] == "passed"]
    assert len(passed) > 30


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64, np.uint32, np.uint64])
def test_bytes_in_wider_integers_are_bytes(run, dtype):
    X = np.random.default_rng(0).integers(0, 256, (6, 8, 8), dtype=np.uint8)
    wanted = Encoder(source=run, device="cpu").fit(X).transform(X)
    fitted = Encoder(source=run, device="cpu").fit(X.astype(dtype))
    np.testing.assert_array_equal(fitted.transform(X.astype(dtype)), wanted)
    with pytest.raises(UserError, match="X: its pixels reach 300, although others do not exceed 255: scale them"):
        fitted.transform(np.full((2, 8, 8), 300, dtype))


def test_integers_of_16_bits_are_scaled(run, tmp_path):
    X = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    wanted = Encoder(source=run, device="cpu").fit(X).transform(X)
    deep = Encoder(source=run, device="cpu").fit(X.astype(np.uint16) * 257)
    np.testing.assert_array_equal(deep.transform(X.astype(np.uint16) * 257), wanted)
    np.testing.assert_array_equal(deep.transform(X.astype(np.int64) * 257), wanted)
    assert deep.range_ == (0, 65535)
    of_floats = Encoder(source=run, device="cpu").fit(X * 257.0)
    np.testing.assert_array_equal(of_floats.transform(X.astype(np.int64) * 257), of_floats.transform(X * 257.0))
    options = {**SMALL["options"], "white": 4095}
    of_12_bits = Encoder("simclr", **{**SMALL, "options": options}).fit(X.astype(np.uint16) * 16)
    of_bytes = Encoder("simclr", **SMALL).fit(X)
    assert of_12_bits.range_ == (0, 4095)
    np.testing.assert_array_equal(of_12_bits.transform(X.astype(np.int32) * 16), of_bytes.transform(X))
