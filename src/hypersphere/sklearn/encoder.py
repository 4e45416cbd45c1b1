"""A transformer of scikit-learn: images to embeddings, by an encoder that `fit` trains, or by a finished one."""

import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from hypersphere.data.bands import assumed_white
from hypersphere.data.object_datasets import as_images
from hypersphere.errors import UserError
from hypersphere.inference.loading import Loaded, load
from hypersphere.sphere import unit

WATCHED = 16  # training images that the run takes for held-out ones, so that it learns from all
SEEDS = 2**31 - 1
KEPT = [np.uint8, np.float32, np.float64, *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))]


class Encoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Embeds images: `fit` trains an encoder without labels, or takes a finished one; `transform` gives its features.

    X is an array of images: (N, H, W), (N, H, W, C) or (N, C, H, W); or rows of pixels (N, H·W), which are squares or
    have the shape `image_shape`. Floats are scaled from the smallest to the largest value that `fit` saw to 0 … 1.
    uint8 is used as it is, and the white value of other integers is that of `hs.pretrain`, which is 65535 or
    `options={"white": …}`, or 255 if all integers that `fit` saw fit 8 bits. With a finished encoder, X may also be a
    list of paths.

    Args:
        method: Method of `hs.pretrain`, such as "byol" or "simclr-uni". "supervised" needs y.
        source: A finished encoder instead: the folder of a run, or one that `hs.export` wrote. Nothing is trained.
        image_shape: Shape of an image, if X has rows of pixels that are not grey squares: (28, 28) or (32, 32, 3).
        epochs: Epochs of training.
        batch: Images in a batch. None: a power of two, at most 256 and a quarter of the images.
        lr: Learning rate for 256 images. None: that of the method's recipe.
        size: Side in pixels of the network's input. None: by the size of the images.
        encoder: Network, a name of `hs.nn.build_encoder`. None: that of the method's recipe, a ResNet-18.
        options: More options of `hs.pretrain`, such as {"hidden": 256, "crop_min": 0.5}.
        normalize: Whether embeddings have unit length.
        device: Device such as "cpu" or "cuda". "auto": a GPU if there is one.
        out: Folder to keep the run in. None: a temporary folder, which is removed.
        random_state: Seed, or a `numpy.random.RandomState`.
        verbose: Whether to show a progress bar.

    Attributes:
        encoder_: The trained network.
        n_features_in_: Second dimension of X: for rows of pixels, the pixels of an image.
        range_: The values that become black and white: the smallest and the largest of floats; 0 and white of integers.

    Raises:
        UserError: If X are no images, or an option cannot be used.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> encoder = hs.sklearn.Encoder("simclr", encoder="hypersphere/digits", size=8, epochs=1, batch=16)
        >>> images, labels = torch.rand(64, 8, 8).numpy(), torch.arange(64).numpy() % 4
        >>> make_pipeline(encoder, LogisticRegression()).fit(images, labels).predict(images).shape
        (64,)
    """

    def __init__(
        self,
        method: str = "byol",
        source: str | os.PathLike[str] | None = None,
        image_shape: tuple[int, ...] | None = None,
        epochs: int = 100,
        batch: int | None = None,
        lr: float | None = None,
        size: int | None = None,
        encoder: str | None = None,
        options: Mapping[str, Any] | None = None,
        normalize: bool = False,
        device: str = "auto",
        out: str | os.PathLike[str] | None = None,
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool = False,
    ) -> None:
        self.method, self.source, self.image_shape = method, source, image_shape
        self.epochs, self.batch, self.lr, self.size, self.encoder = epochs, batch, lr, size, encoder
        self.options, self.normalize, self.device, self.out = options, normalize, device, out
        self.random_state, self.verbose = random_state, verbose

    def fit(self, X: Any, y: Any = None) -> "Encoder":
        """Train the encoder on X, or load `source`.

        Args:
            X: Images.
            y: Labels, for the method "supervised" only.

        Returns:
            The encoder itself.
        """
        paths = _are_paths(X)
        if self.source is None and paths:
            raise UserError(
                "paths of images need a finished encoder: pass `source`, or train one with hs.pretrain(data=FOLDER)"
            )
        X = X if paths else self._checked(X, first=True)
        if self.source is not None:
            self._loaded = self._finished()
        self.range_, self._assumed, self._saw_floats = (0.0, 1.0), None, not paths and X.dtype.kind == "f"
        if self._saw_floats:
            self.range_ = float(X.min()), float(X.max())
        elif not paths:
            self._assumed = assumed_white(X)
            self.range_ = 0.0, float(self._white or self._assumed)
        images = None if paths else self._pixels(X)
        if self.source is None:
            self._loaded = self._train(images, y)
        self.encoder_, self._n_features_out = self._loaded.encoder, self._loaded.features
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Embed images.

        Args:
            X: Images as in `fit`, or with `source` a list of paths.

        Returns:
            Embeddings of shape (N, D), float32.
        """
        check_is_fitted(self)
        images = X if _are_paths(X) else self._pixels(self._checked(X, first=False))
        features = self._loaded.encode(images)
        return (unit(features) if self.normalize else features).cpu().numpy()

    def _finished(self) -> Loaded:
        assert self.source is not None
        return load(Path(self.source), self.device)

    def _train(self, images: Any, y: Any) -> Loaded:
        from hypersphere.runs.pretraining import pretrain

        data: dict[str, Any] = {"train_images": images, "val_images": images[:WATCHED]}
        if y is not None and self.method == "supervised":
            data |= {"train_labels": np.asarray(y), "val_labels": np.asarray(y)[:WATCHED]}
        given = {"lr": self.lr, "size": self.size, "encoder": self.encoder, **(self.options or {})}
        options = {name: value for name, value in given.items() if value is not None}
        options["batch"] = self.batch or _largest_batch(len(images))
        options |= {"epochs": self.epochs, "seed": _seed(self.random_state), "device": self.device, "knn_every": 0}
        with tempfile.TemporaryDirectory() as scratch:
            out = Path(scratch) / "run" if self.out is None else Path(self.out)
            run = pretrain(self.method, data=data, out=str(out), progress=self.verbose, **options)
            return load(run.path, self.device)

    @property
    def _white(self) -> int | None:
        """The option `white`, or that of the finished encoder."""
        return (self.options or {}).get("white") if self.source is None else self._loaded.preprocess.white

    def _checked(self, X: Any, first: bool) -> np.ndarray:
        """X as an array of numbers, after the checks of scikit-learn."""
        kinds: dict[str, Any] = {"allow_nd": True, "dtype": KEPT, "reset": first}
        try:
            from sklearn.utils.validation import validate_data
        except ImportError:  # before scikit-learn 1.6
            return self._validate_data(X, **kinds)
        return validate_data(self, X, **kinds)

    def _pixels(self, X: np.ndarray) -> np.ndarray:
        """uint8 images of shape (N, C, H, W)."""
        if X.ndim == 2:
            X = X.reshape(len(X), *self._shape(X.shape[1]))
        if X.dtype.kind == "f" or (self._saw_floats and X.dtype != np.uint8):
            low, high = self.range_
            X = np.clip((X.astype(np.float32) - low) / ((high - low) or 1.0), 0, 1)
            return as_images("X", X).numpy()
        return as_images("X", X, self._white, self._assumed).numpy()

    def _shape(self, pixels: int) -> tuple[int, ...]:
        side = math.isqrt(pixels)
        shape = self.image_shape or (side, side)
        if math.prod(shape) != pixels:
            raise ValueError(
                f"rows of {pixels} numbers are no images of shape {' × '.join(map(str, shape))}: pass `image_shape`"
            )
        return tuple(shape)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_loaded")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = []
        tags.target_tags.required = self.method == "supervised" and self.source is None
        return tags


def _are_paths(X: Any) -> bool:
    some = X[0] if isinstance(X, Sequence) and not isinstance(X, str | bytes) and len(X) else None
    if isinstance(X, np.ndarray) and X.ndim == 1 and X.dtype.kind in "OU" and len(X):
        some = X[0]
    return isinstance(some, str | os.PathLike)


def _largest_batch(images: int) -> int:
    """A power of two, at most 256 and a quarter of the images."""
    return max(2, min(256, 2 ** int(math.log2(max(2, images // 4)))))


def _seed(random_state: int | np.random.RandomState | None) -> int:
    return random_state if isinstance(random_state, int) else int(check_random_state(random_state).randint(SEEDS))
