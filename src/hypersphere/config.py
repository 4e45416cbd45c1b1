"""One run, as data: every choice that makes it, and its hash."""

import dataclasses
import hashlib
import json
import math
import numbers
import os
import re
import reprlib
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hypersphere.errors import UserError, similar
from hypersphere.presets import DATA, ON_DIGITS, family, on_photographs, own_defaults, preset
from hypersphere.util.written import is_reference, reference_to

Precision = Literal["auto", "float32", "bfloat16", "float16"]
Switch = Literal["auto", "on", "off"]
RECIPE_VERSION = 1  # raised whenever a default below changes what a run computes


def _unhashed(default: Any) -> Any:
    """A field that changes where or how a run goes, not what comes out of it."""
    return field(default=default, metadata={"hashed": False})


@dataclass(frozen=True)
class Config:
    """Options of a run. The defaults are the paper's for CIFAR-10 and ResNet-18, 300 epochs."""

    data: str = "cifar10"
    """Data set, by its name (hypersphere data lists them); or a folder of images, a .npz file of arrays, or
    package.module:function, which makes them."""
    holdout: Literal["validation", "test"] = "validation"
    """Where accuracy is measured: on images held out of the training set, to choose options by; or on the test set."""
    root: Path | None = _unhashed(None)
    """Folder of the data files (None: $HYPERSPHERE_DATA, or ~/.cache/hypersphere/data). With --resume of a run on a
    folder of images that has moved: that folder."""
    labels: str | None = None
    """Labels of a folder's images: a CSV file with columns path, relative to that folder, and label (None: the names
    of its folders); if wanted also split (train, val, test), and group (a patient, a lot: held out as a whole)."""
    white: int | None = None
    """Value of white in grey files of 16 bits, such as 4095 for 12-bit data; what is above is white, too (None:
    65535)."""
    size: int | None = None
    """Pixels of a side of the encoder's input, for images of your own (None: by their size)."""
    crop_min: float | None = None
    """Least share of the image's area that a random crop keeps (None: the data set's recipe)."""
    small_crops: int = 0
    """Small crops of each image beside its two views; for swav, dino, deepcluster and obow."""
    small_side: float = 0.5
    """Their side, as a share of the views' side."""
    small_area: tuple[float, ...] = ()
    """Least and most of the image's area that they keep (none given: from half of what the views keep at least, up
    to a quarter)."""

    encoder: str = "torchvision/resnet18"
    """Encoder: torchvision/resnet18, timm/vit_small_patch16_224 or any other of theirs, hypersphere/alexnet or
    hypersphere/digits; or your own, package.module:function."""
    init: str | None = None
    """Weights that the encoder starts from: a .safetensors or .pt file, a run's folder, one that export wrote; or
    pretrained, those that torchvision or timm have. A run's hash covers this name, not what is there (None:
    random)."""
    stem: Literal["cifar", "imagenet"] = "cifar"
    """First layers of a ResNet: cifar keeps small images at full size."""
    norm: Literal["batch", "group", "none"] = "batch"
    """Normalization in encoder and heads; group also standardizes the encoder's weights."""
    dimensions: int | None = None
    """Outputs of the encoder (None: as many as it has); 2 puts features on the circle."""
    hidden: int = 4096
    """Hidden units of projector and predictor."""
    projection: int = 256
    """Outputs of projector and predictor."""

    method: Literal[
        "byol",
        "simclr",
        "simsiam",
        "moco",
        "infomin",
        "barlow",
        "supervised",
        "swav",
        "dino",
        "deepcluster",
        "obow",
    ] = "byol"
    """Loss between the views."""
    tau: float = 0.99
    """Decay of the moving average of the weights; BYOL, DINO and OBoW: at the start, it rises to 1."""
    tau_end: float = 1.0
    """And at the end, of BYOL."""
    uniformity: float = 0.0
    """Weight of the uniformity loss of the projections (0: off)."""
    uniformity_t: float = 2.0
    """Its t."""
    variance_covariance: float = 0.0
    """Weight of VICReg's variance and covariance of the projections (0: off)."""
    koleo: float = 0.0
    """Weight of KoLeo, the nearest neighbours' distances, of the projections (0: off)."""
    sigreg: float = 0.0
    """Weight of SIGReg, the distance to a normal law in random directions, of the projections (0: off)."""
    temperature: float = 0.5
    """Temperature of the softmax, of methods that have one."""
    teacher_temperature: float = 0.04
    """DINO: temperature of the teacher."""
    teacher_warmup: int = 0
    """DINO: epochs in which it rises to that from 0.04."""
    predictor: bool = True
    """BYOL: the predictor after the projector."""
    bottleneck: int = 512
    """SimSiam: hidden units of the predictor."""
    predictor_decays: bool = True
    """SimSiam: whether the learning rate of the predictor falls as that of the rest."""
    layers: int = 2
    """SimSiam and Barlow Twins: linear layers of the projector."""
    redundancy: float = 0.005
    """Barlow Twins: weight λ of the correlations between dimensions."""
    queue: int = 4096
    """MoCo and InfoMin: keys of earlier images that are kept as negatives."""
    prototypes: int = 512
    """SwAV and DINO: prototypes; DeepCluster: clusters; OBoW: words of the vocabulary."""
    codes_queue: int = 0
    """SwAV: earlier projections of each view that prototypes are shared out among, beside those of the batch."""
    jigsaw: int = 3
    """InfoMin: patches along a side of the jigsaw."""
    policy: Literal["data", "moco", "simclr", "infomin"] = "data"
    """Augmentations: of the data set's recipe (BYOL's on photographs), or as these methods have them on photographs."""
    randaugment: int = 0
    """Operations of RandAugment on each view, after the others; InfoMin's has 2."""
    extra: tuple[str, ...] = ()
    """Options that a method of your own has beside those here, as name=value."""
    energy: float = 0.0
    """Weight of the hyperspherical energy of the networks' weights (0: off)."""
    energy_s: float = 2.0
    """Its power s; 0 is the logarithmic energy."""
    energy_metric: Literal["euclidean", "geodesic"] = "geodesic"
    """Distance between neurons; geodesic is the angular energy."""
    energy_half_space: bool = False
    """Count the negatives of the neurons as well."""
    energy_projection: int | None = None
    """Dimensions of 20 random subspaces to take the mean energy in (None: the energy in the whole space)."""
    orthogonality: float = 0.0
    """Weight of the departure of the networks' weights from orthonormal ones (0: off), in the layers of
    energy_layers."""
    orthogonality_kind: Literal["soft", "srip"] = "soft"
    """Its norm: of Frobenius, squared (soft), or the spectral one (srip)."""
    regularizer: str | None = None
    """A regularizer of the networks' weights of your own: package.module:Class, a subclass of
    hypersphere.regularize.WeightRegularizer (None: none), in the layers of energy_layers."""
    regularizer_weight: float = 1.0
    """Its weight."""
    energy_layers: tuple[str, ...] = ("projector", "predictor")
    """Sub-networks, or name patterns, of the regularized layers; heads: all but the encoder."""

    epochs: int = 300
    """Passes over the images."""
    batch: int = 1024
    """Images per update."""
    micro_batch: int | None = None
    """Images computed at once, their gradients added up to those of a batch (None: the batch). BatchNorm, SimCLR's
    negatives and the uniformity loss see only these."""
    optimizer: Literal["lars", "sgd", "adamw"] = "lars"
    """Optimizer."""
    lr: float = 1.5
    """Peak learning rate for a batch of 256; it scales with the batch."""
    warmup: int | None = None
    """Epochs of linear rise before the cosine decay (None: 10, or a tenth of a shorter run)."""
    weight_decay: float = 1e-6
    """Weight decay; never of biases and norms."""
    weight_decay_end: float | None = None
    """Weight decay at the end of the run, to which it moves along half a cosine (None: as at the start)."""
    momentum: float = 0.9
    """Momentum of LARS and SGD."""
    trust: float = 0.001
    """LARS: step length relative to the norm of the weights."""
    seed: int = 0
    """Seed of weights, order of images and views."""
    precision: Precision = _unhashed("auto")
    """Arithmetic of the networks; auto: bfloat16 on a GPU that has it, else float32."""

    device: str = _unhashed("auto")
    """auto: the GPU if there is one; or cpu, cuda, cuda:1, mps."""
    kernels: Switch = _unhashed("auto")
    """Fused Triton kernels; auto: on a GPU where Triton is installed. Off: the reference operations."""
    graph: Switch = _unhashed("auto")
    """Record an update as a CUDA graph and replay it; auto: on a GPU, but for float16."""
    compile: Switch = _unhashed("auto")
    """torch.compile the method: a minute at the start; for encoders without kernels of ours. auto: off."""
    layout: Literal["auto", "channels_last", "contiguous"] = _unhashed("auto")
    """Memory layout of images; auto: channels_last on a GPU."""
    workers: int | None = _unhashed(None)
    """Processes that decode image files (None: one for each core beside a GPU, else none)."""
    timeout: float = _unhashed(600.0)
    """Seconds that the processes of a job wait for one that does not answer, or is busy measuring, before all end."""
    out: Path | None = _unhashed(None)
    """Folder of the run (None: a new one in runs/)."""
    save_every: int | None = _unhashed(None)
    """Updates between checkpoints (None: two minutes); one is also written at the end and on Ctrl-C."""
    log_every: int = _unhashed(10)
    """Updates between lines of metrics.jsonl."""
    knn_every: int = _unhashed(10)
    """Epochs between k-NN accuracies, and other measures, of the held-out images; where these are the test set, of
    some that are learnt from (0: never)."""
    on_collapse: Literal["warn", "stop"] = _unhashed("warn")
    """What happens when the features collapse: a warning, or the end of the run."""

    def __post_init__(self) -> None:
        for name, kind in _kinds().items():
            object.__setattr__(self, name, _fitting(name, kind, getattr(self, name)))
        self._check("size", self.size is None or 8 <= self.size <= 1024, "between 8 and 1024")
        self._check("white", self.white is None or 255 <= self.white <= 65535, "between 255 and 65535")
        self._check("workers", self.workers is None or self.workers >= 0, "at least 0")
        of_networks = ("hidden", "projection", "bottleneck", "layers", "queue", "jigsaw")
        for name in ("epochs", *of_networks, "save_every", "log_every"):
            self._check(name, getattr(self, name) is None or getattr(self, name) >= 1, "at least 1")
        weights = ("uniformity", "energy", "energy_s", "weight_decay", "weight_decay_end", "redundancy")
        diversity = ("variance_covariance", "koleo", "sigreg", "orthogonality", "regularizer_weight")
        counts = ("knn_every", "seed", "small_crops", "codes_queue", "teacher_warmup", "randaugment")
        for name in (*weights, *diversity, *counts):
            self._check(name, getattr(self, name) is None or getattr(self, name) >= 0, "at least 0")
        for name in ("lr", "trust", "temperature", "teacher_temperature", "uniformity_t", "timeout"):
            self._check(name, getattr(self, name) > 0, "above 0")
        for name in ("tau", "tau_end"):
            self._check(name, 0 <= getattr(self, name) <= 1, "between 0 and 1")
        self._check("momentum", 0 <= self.momentum < 1, "at least 0 and below 1")
        for name in ("batch", "micro_batch", "dimensions", "energy_projection", "prototypes"):
            self._check(name, getattr(self, name) is None or getattr(self, name) >= 2, "at least 2")
        self._check("seed", self.seed < 2**32, "below 2³²")
        self._check(
            "warmup", self.warmup is None or 0 <= self.warmup < self.epochs, f"less than `epochs` {self.epochs}"
        )
        self._check("crop_min", self.crop_min is None or 0 < self.crop_min <= 1, "above 0 and at most 1")
        self._check("small_side", 0 < self.small_side <= 1, "above 0 and at most 1")
        area = self.small_area
        rises = not area or (len(area) == 2 and 0 < area[0] <= area[1] <= 1)
        self._check("small_area", rises, "two shares, the smaller first, above 0 and at most 1")
        divides = self.micro_batch is None or self.batch % self.micro_batch == 0
        self._check("micro_batch", divides, f"a divisor of `batch` {self.batch}")
        own = self.regularizer is None or is_reference(self.regularizer)
        self._check("regularizer", own, "a class of your own, as package.module:Class")
        self._check("energy_layers", len(self.energy_layers) > 0, "at least one name")

    def _check(self, name: str, right: bool, wanted: str) -> None:
        value = getattr(self, name)
        if not right or (isinstance(value, float) and not math.isfinite(value)):
            raise UserError(f"`{name}` must be {wanted}, not {value}")

    def replace(self, **options: Any) -> "Config":
        return dataclasses.replace(self, **fitting(options))

    def to_json(self) -> dict[str, Any]:
        plain = dataclasses.asdict(self)
        return {name: str(value) if isinstance(value, Path) else value for name, value in plain.items()}

    @staticmethod
    def from_json(saved: dict[str, Any]) -> "Config":
        return Config().replace(**saved)

    def differences(self, other: "Config") -> list[str]:
        """Names of the fields that make the two runs' results differ."""
        return [name for name in _HASHED if getattr(self, name) != getattr(other, name)]

    @property
    def data_name(self) -> str:
        """As part of a file's name."""
        return re.sub(r"[^\w.-]+", "-", Path(self.data).name)

    @property
    def hash(self) -> str:
        """Of what changes the result and is not at its default, so that a new option leaves old hashes alone."""
        return _hash(self)

    @property
    def title(self) -> str:
        """The method with its regularizers, as the presets are named."""
        return self.method.rpartition(":")[2] + "-uni" * (self.uniformity > 0) + "-mhe" * (self.energy > 0)


@cache
def _kinds() -> dict[str, Any]:
    """The type of each field."""
    return get_type_hints(Config)


@lru_cache(maxsize=4096)  # results are looked up by it many times
def _hash(config: Config) -> str:
    chosen = {name: getattr(config, name) for name in config.differences(Config())}
    text = json.dumps({"version": RECIPE_VERSION, **chosen}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def fitting(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a config as its fields have them, if there are such fields; whether they agree is another question."""
    kinds = _kinds()
    for name in options:
        if name not in kinds:
            raise UserError(f"unknown option {name!r}{similar(name, kinds)}")
    return {name: _fitting(name, kinds[name], value) for name, value in options.items()}


def _fitting(name: str, kind: Any, value: Any) -> Any:
    """The value as its field's type has it: 10 as 10.0, "a" as Path("a") or ("a",); a choice must be one of those."""
    if get_origin(kind) is types.UnionType:
        if value is None:
            return None
        kind = next(k for k in get_args(kind) if k is not type(None))
    if get_origin(kind) is Literal:
        if name == "method" and is_reference(value):
            return value
        if value not in get_args(kind):
            raise UserError(f"`{name}` must be one of {', '.join(get_args(kind))}, not {reprlib.repr(value)}")
        return value
    if get_origin(kind) is tuple:
        if isinstance(value, Mapping):
            value = [f"{key}={one}" for key, one in value.items()]
        values = value if isinstance(value, list | tuple) else (value,)
        return tuple(_fitting(name, get_args(kind)[0], part) for part in values)
    if name in ("data", "encoder", "regularizer") and callable(value):
        return _reference(name, value)
    accepted, wanted = _ACCEPTED[kind]
    if not isinstance(value, accepted) or isinstance(value, bool) != (kind is bool):
        raise UserError(f"`{name}` must be {wanted}, not {reprlib.repr(value)}")
    return Path(os.path.expanduser(value)) if kind is Path else kind(value)


def _reference(name: str, value: Any) -> str:
    reference = reference_to(value)
    if reference is None:
        wanted = "a name, or a function or class at the top of a module that makes it"
        raise UserError(f"`{name}` must be {wanted}, not {type(value).__name__}")
    return reference


# type of a field → what may be given for it, and what it is called
_ACCEPTED: dict[type, tuple[Any, str]] = {
    bool: (bool, "True or False"),
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    str: (str | os.PathLike, "a name"),
    Path: (str | os.PathLike, "a path"),
}
_HASHED = [f.name for f in dataclasses.fields(Config) if f.metadata.get("hashed", True)]


def worded(value: Any) -> str:
    """The value of a field, in words."""
    return " + ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def recipe(method: str, data: str = "cifar10", **options: Any) -> Config:
    """The whole config of a method on a data set; `options` change it further."""
    of_data = DATA.get(data, {}) if isinstance(data, str) else {}
    of_method = {**preset(method), **on_photographs(method, data, of_data.get("size"))}
    if data == "digits":
        base = of_method["method"]
        of_method = {**of_method, **of_data, **ON_DIGITS.get(family(base), {}), **own_defaults(base)}
    return Config().replace(**{"data": data, **of_data, **of_method, **options})
