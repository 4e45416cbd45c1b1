"""One run as data: every option that makes it, and its hash."""

import contextlib
import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, cast, get_type_hints

from hypersphere.errors import UserError, did_you_mean
from hypersphere.methods import METHODS, Method, method_class
from hypersphere.methods.options import SHARED_DEFAULTS, MultiCropOptions, method_options, own_parameters
from hypersphere.methods.recipes import parse_name, published_recipe, recipe_on
from hypersphere.presets import data_options
from hypersphere.util.cores import MOST_PROCESSES
from hypersphere.util.option_fields import check_limits, coerce, option
from hypersphere.util.references import allow, is_allowed, is_reference

Precision = Literal["auto", "float32", "bfloat16", "float16"]
Switch = Literal["auto", "on", "off"]
RECIPE_VERSION = 1  # raise it whenever a default changes what a run computes
_NO_DEFAULT = object()


class _Unused:
    """Room for options of a saved config that its method does not have; they count in its hash only."""

    __slots__ = ("_unused",)  # apart from the fields, which vars() shows
    _unused: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Config(_Unused):
    """Options of a run. The defaults are the paper's for CIFAR-10 and ResNet-18, 300 epochs.

    Options of a method are fields, too: `Config(method="moco")` is an instance of `config_type("moco")`, a subclass
    with the fields of `MoCo.Options`.

    Raises:
        UserError: If an option has the wrong type or value.

    Example:
        >>> from hypersphere.config import Config
        >>> config = Config(method="moco", queue=512)
        >>> config.queue, config.epochs
        (512, 300)
        >>> config.replace(epochs=100).epochs
        100
    """

    data: str = "cifar10"
    """Dataset: a name (`hypersphere data` lists them); a folder of images or videos; a .zip, .tar, .parquet, .npz or
    .npy file; or a function that makes them, as package.module:function."""
    holdout: Literal["validation", "test"] = "validation"
    """Images to measure accuracy on: a part of the training set, to choose options by, or the test set."""
    root: Path | None = option(None, hashed=False)
    """Folder of the data files (None: $HYPERSPHERE_DATA, or ~/.cache/hypersphere/data). With --resume of a run on a
    folder of images that has moved: its new location."""
    labels: str | None = None
    """CSV file with the labels of images: columns path (or filename, image_id, …), relative to the folder, and label
    (or class, target, …); optionally split (train, val, test) and group, such as a patient, which is held out as a
    whole (None: names of subfolders)."""
    white: int | None = option(None, least=255, most=65535)
    """Value of white in images of more than 8 bits, such as 4095 for 12-bit data; larger values are white, too (None:
    65535, and 1 for floats)."""
    mean: tuple[float, ...] = ()
    """Mean of each channel, from 0 to 1, for the normalization of your own images (none: measured; for colour images
    that of ImageNet)."""
    std: tuple[float, ...] = ()
    """Standard deviation of each channel, as `mean`."""
    frames: int = option(16, least=1, most=10_000)
    """Frames of each video, evenly spaced."""
    size: int | None = option(None, least=8, most=1024)
    """Side of the encoder's input in pixels, for images of your own (None: by their size)."""
    crop_min: float | None = option(None, above=0, most=1)
    """Smallest share of the image's area that a random crop keeps (None: the dataset's recipe)."""

    encoder: str = "torchvision/resnet18"
    """Encoder: torchvision/resnet18, timm/vit_small_patch16_224 or any other of theirs, hypersphere/alexnet or
    hypersphere/digits; or your own, as package.module:function."""
    init: str | None = None
    """Weights that the encoder starts from: a .safetensors or .pt file, a run's folder, an exported encoder; or
    pretrained, for those of torchvision or timm. The hash covers this name, not the weights (None: random)."""
    stem: Literal["cifar", "imagenet"] = "cifar"
    """First layers of a ResNet: cifar keeps small images at full size."""
    norm: Literal["batch", "group", "none"] = "batch"
    """Normalization in encoder and heads; group also standardizes the encoder's weights."""
    freeze_patches: bool = False
    """Whether the patch projection of a vision transformer keeps its first weights, which stabilizes training."""
    dimensions: int | None = option(None, least=2)
    """Outputs of the encoder (None: its own number); 2 puts features on the circle."""

    method: str = "byol"
    """Method: a name (`hypersphere methods` lists them), or your own, as package.module:Class."""
    uniformity: float = option(0.0, least=0)
    """Weight of the uniformity loss of the projections (0: off)."""
    uniformity_t: float = option(2.0, above=0, used_if=lambda config: config.uniformity)
    """Scale t of the uniformity loss."""
    variance_covariance: float = option(0.0, least=0)
    """Weight of VICReg's variance and covariance losses of the projections (0: off)."""
    koleo: float = option(0.0, least=0)
    """Weight of the KoLeo loss, of distances to nearest neighbours, of the projections (0: off)."""
    sigreg: float = option(0.0, least=0)
    """Weight of the SIGReg loss, of the distance to a normal distribution in random directions, of the projections (0:
    off)."""
    spherical_mmd: float = option(0.0, least=0)
    """Weight of the squared maximum mean discrepancy of the projections from the uniform distribution on the sphere (0:
    off)."""
    policy: Literal["data", "moco", "simclr", "infomin"] = "data"
    """Augmentations: those of the dataset's recipe (on photographs, BYOL's), or those of another method on
    photographs."""
    randaugment: int = option(0, least=0, most=64)
    """Operations of RandAugment on each view, after the other augmentations; InfoMin has 2."""
    extra: tuple[str, ...] = ()
    """Deprecated: pass options of your own method by their names. Options as name=value."""
    energy: float = option(0.0, least=0)
    """Weight of the hyperspherical energy of the networks' weights (0: off)."""
    energy_s: float = option(2.0, least=0, used_if=lambda config: config.energy)
    """Power s of the energy; 0 is the logarithmic energy."""
    energy_metric: Literal["euclidean", "geodesic"] = option("geodesic", used_if=lambda config: config.energy)
    """Distance between neurons; geodesic is the angular energy."""
    energy_half_space: bool = option(False, used_if=lambda config: config.energy)
    """Whether the negatives of the neurons count, too."""
    energy_projection: int | None = option(None, least=2, used_if=lambda config: config.energy)
    """Dimensions of 20 random subspaces to average the energy over (None: the energy in the whole space)."""
    orthogonality: float = option(0.0, least=0)
    """Weight of the deviation of the networks' weights from orthonormal ones, in `energy_layers` (0: off)."""
    orthogonality_kind: Literal["soft", "srip"] = option("soft", used_if=lambda config: config.orthogonality)
    """Norm of the deviation: squared Frobenius (soft) or spectral (srip)."""
    regularizer: str | None = None
    """Regularizer of your own for the networks' weights in `energy_layers`, as package.module:Class: a subclass of
    hypersphere.regularize.WeightRegularizer."""
    regularizer_weight: float = option(1.0, least=0, used_if=lambda config: config.regularizer)
    """Weight of your own regularizer."""
    energy_layers: tuple[str, ...] = option(
        ("projector", "predictor"), used_if=lambda config: config.energy or config.orthogonality or config.regularizer
    )
    """Networks, or name patterns of layers, to regularize; heads: all networks except the encoder."""

    epochs: int = option(300, least=1)
    """Passes over the images."""
    batch: int = option(1024, least=2)
    """Images per step."""
    micro_batch: int | None = option(None, least=2)
    """Images computed at once; gradients add up to those of a batch (None: the batch). BatchNorm, SimCLR's negatives
    and the uniformity loss see only these."""
    optimizer: Literal["lars", "sgd", "adamw"] = "lars"
    """Optimizer."""
    lr: float = option(1.5, above=0)
    """Peak learning rate for a batch of 256; it scales with the batch."""
    warmup: int | None = None
    """Epochs of linear warm-up before the cosine decay (None: 10, or a tenth of a shorter run)."""
    weight_decay: float = option(1e-6, least=0)
    """Weight decay; biases and norms have none."""
    weight_decay_end: float | None = option(None, least=0)
    """Weight decay at the end of the run, reached along half a cosine (None: constant)."""
    momentum: float = option(0.9, least=0, below=1, used_if=lambda config: config.optimizer != "adamw")
    """Momentum of LARS and SGD."""
    trust: float = option(0.001, above=0, used_if=lambda config: config.optimizer == "lars")
    """Step length of LARS relative to the norm of the weights."""
    clip: float | None = option(None, above=0)
    """Largest norm of each weight's gradient; longer ones are shortened to it (None: no limit)."""
    seed: int = option(0, least=0, below=2**32)
    """Seed of weights, order of images and views."""
    precision: Precision = option("auto", hashed=False)
    """Precision of the networks; auto: bfloat16 on a GPU that supports it, else float32."""

    device: str = option("auto", hashed=False)
    """Device: cpu, cuda, cuda:1, mps; auto: the GPU if there is one."""
    kernels: Switch = option("auto", hashed=False)
    """Fused Triton kernels; auto: on a GPU if Triton is installed. off: the reference operations."""
    graph: Switch = option("auto", hashed=False)
    """Record a step as a CUDA graph and replay it; auto: on a GPU, except with float16."""
    compile: Switch = option("auto", hashed=False)
    """torch.compile the method, which takes a minute at the start: for encoders without kernels here. auto: off."""
    layout: Literal["auto", "channels_last", "contiguous"] = option("auto", hashed=False)
    """Memory layout of images; auto: channels_last on a GPU."""
    workers: int | None = option(None, least=0, most=MOST_PROCESSES, hashed=False)
    """Processes that decode image files (None: one for each core with a GPU, else none)."""
    cache: Literal["auto", "gpu", "memory", "disk", "off"] = option("auto", hashed=False)
    """Where decoded image files are kept, so that each is decoded once: in GPU memory, in memory, or on disk, where
    later runs find them ($HYPERSPHERE_CACHE, or ~/.cache/hypersphere/decoded). auto: the first with enough room; off:
    files are decoded in every epoch."""
    timeout: float = option(600.0, above=0, hashed=False)
    """Seconds to wait for a rank that does not answer before all ranks stop."""
    out: Path | None = option(None, hashed=False)
    """Folder of the run (None: a new one in runs/)."""
    save_every: int | None = option(None, least=1, hashed=False)
    """Steps between checkpoints (None: two minutes); one is also written at the end and on Ctrl-C."""
    log_every: int = option(10, least=1, hashed=False)
    """Steps between lines of metrics.jsonl."""
    knn_every: int = option(10, least=0, hashed=False)
    """Epochs between measurements of k-NN accuracy and others on held-out images; if these are the test set, on some
    training images. The first and the last epoch are measured, too (0: never)."""
    track: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = option((), hashed=False)
    """Services that get a copy of metrics.jsonl: Weights & Biases, MLflow; TensorBoard does if it is installed."""
    on_collapse: Literal["warn", "stop"] = option("warn", hashed=False)
    """Whether a run warns or stops if the features collapse."""

    def __new__(cls, *args: Any, **options: Any) -> "Config":
        return object.__new__(config_type(options.get("method", cls.method)) if cls is Config else cls)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_unused", ())
        for name, (declared, kind) in _declared(type(self)).items():
            value = coerce(name, kind, getattr(self, name))
            check_limits(declared, value)
            object.__setattr__(self, name, value)
        shorter = self.warmup is None or 0 <= self.warmup < self.epochs
        self._check("warmup", shorter, f"less than `epochs` {self.epochs}")
        divides = self.micro_batch is None or self.batch % self.micro_batch == 0
        self._check("micro_batch", divides, f"a divisor of `batch` {self.batch}")
        importable = self.regularizer is None or is_reference(self.regularizer)
        self._check("regularizer", importable, "a class of your own, as package.module:Class")
        same = len(self.mean) == len(self.std) and all(std > 0 for std in self.std)
        self._check("std", same, f"above 0, and as many numbers as `mean` {self.mean}")
        self._check("energy_layers", len(self.energy_layers) > 0, "at least one name")
        for base in type(self).__mro__:  # the checks of the method's options
            if not issubclass(base, Config) and "__post_init__" in vars(base):
                base.__post_init__(self)  # type: ignore[attr-defined]

    def _check(self, name: str, right: bool, expected: str) -> None:
        if not right:
            raise UserError(f"`{name}` must be {expected}, got {getattr(self, name)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_process, (self.to_json(),)

    def replace(self, **options: Any) -> "Config":
        """Return a config with some options changed. With another `method`, options that it does not have are dropped.

        Raises:
            UserError: If the method does not have an option, or a value is wrong.

        Example:
            >>> from hypersphere.config import recipe
            >>> recipe("byol", "digits").replace(tau=0.9).tau
            0.9
        """
        same = options.get("method", self.method) == self.method
        kind = type(self) if same else config_type(options["method"])
        kept = {name: value for name, value in vars(self).items() if name in _declared(kind)}
        changed = kind(**{**kept, **_coerce_options(kind, options)})
        if same:
            object.__setattr__(changed, "_unused", self._unused)
        return changed

    def without_unused(self) -> "Config":
        """Return the config without options of earlier versions that its method does not have, as it is made today."""
        return type(self)(**vars(self))

    def to_json(self) -> dict[str, Any]:
        """Return all options, as `json.dumps` takes them."""
        plain = {**dict(self._unused), **vars(self)}
        return {name: str(value) if isinstance(value, Path) else value for name, value in plain.items()}

    @staticmethod
    def from_json(saved: Mapping[str, Any]) -> "Config":
        """Return a saved config.

        Options that its method does not have are dropped; runs of earlier versions have some. They still count in the
        hash, so that it stays as it was. A method that is not one of ours is imported only if the user named its module
        or trusts a file that names it (`util/trust.py`). Otherwise the config has no options of the method.

        Args:
            saved: What `to_json` returned.

        Raises:
            UserError: If an option is unknown, or a value is wrong.
        """
        saved = dict(saved)
        method = saved.get("method", Config.method)
        kind = _saved_type(method)
        known = {name: value for name, value in saved.items() if name in _declared(kind)}
        unused = {}
        for name, value in saved.items():
            if name not in known:
                if name not in SHARED_DEFAULTS and not is_reference(method):
                    raise unknown_option(name, [kind.method])
                unused[name] = tuple(value) if isinstance(value, list) else value
        config = kind(**known)
        hashed_values = {
            name: value for name, value in unused.items() if value != SHARED_DEFAULTS.get(name, _NO_DEFAULT)
        }
        object.__setattr__(config, "_unused", tuple(hashed_values.items()))
        return config

    def differences(self, other: "Config") -> list[str]:
        """Return the names of this config's options that make the results of the two runs differ."""
        defaults = _baseline(type(self))
        return [name for name in defaults if getattr(self, name) != getattr(other, name, defaults[name])]

    @property
    def inactive(self) -> set[str]:
        """Names of options that have no effect, because others switch them off."""
        conditions = {declared.name: declared.metadata.get("used_if") for declared in dataclasses.fields(self)}
        return {name for name, used in conditions.items() if used is not None and not used(self)}

    @property
    def data_name(self) -> str:
        """The dataset as part of a file name."""
        return re.sub(r"[^\w.-]+", "-", Path(self.data).name)

    @property
    def hash(self) -> str:
        """Hash of the options that change the result and differ from their defaults.

        A new option therefore leaves the hashes of earlier runs unchanged.
        """
        return _hash(self, self._unused)

    @property
    def title(self) -> str:
        """The method with its regularizers, such as byol-uni-mhe."""
        return self.method.rpartition(":")[2] + "-uni" * (self.uniformity > 0) + "-mhe" * (self.energy > 0)


def config_type(method: str) -> type[Config]:
    """Return the class of a method's configs: a frozen dataclass with the fields of `Config` and of its options.

    Args:
        method: Name of a method in `METHODS`, or package.module:Class.

    Raises:
        UserError: If there is no such method.

    Example:
        >>> from hypersphere.config import config_type
        >>> config_type("moco").queue
        4096
    """
    return _compose(method_class(method), method)


@cache
def _compose(kind: type[Method], method: str) -> type[Config]:
    options = method_options(kind, reserved=dir(Config))
    bases = [options, Config]
    if kind.takes_small_crops and not issubclass(options, MultiCropOptions):
        bases.insert(1, MultiCropOptions)
    fields: list[Any] = [("method", str, method)]
    parameters, _ = own_parameters(kind)
    if "norm" in parameters:
        fields.append(("norm", _declared(Config)["norm"][1], parameters["norm"][1]))
    checks = {"__post_init__": Config.__post_init__}  # which calls those of the options
    made = dataclasses.make_dataclass(
        f"{kind.__name__}Config", fields, bases=tuple(bases), namespace=checks, frozen=True
    )
    return cast(type[Config], made)


def _from_process(saved: Mapping[str, Any]) -> Config:
    """Return the config that another process of ours sent."""
    for name in code_named_in(saved).values():
        allow(name)
    return Config.from_json(saved)


def code_named_in(saved: Mapping[str, Any]) -> dict[str, str]:
    """Return the references to code in a saved config, by option."""
    return {name: saved[name] for name in ("method", "encoder", "regularizer", "data") if is_reference(saved.get(name))}


def _saved_type(method: str) -> type[Config]:
    """Return the class of a saved config: without options of the method if that may not or cannot be imported."""
    if not is_reference(method):
        return config_type(method)
    if is_allowed(method):
        with contextlib.suppress(Exception):  # whatever the user's module raises
            return config_type(method)
    return _compose(Method, method)


def _declared(kind: type[Config]) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    """Return the fields of a config by name, each with its type."""
    return _resolve(cast(Any, kind))  # to mypy, a dataclass is not hashable


@cache
def _resolve(kind: type) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    types = get_type_hints(kind)
    return {declared.name: (declared, types[declared.name]) for declared in dataclasses.fields(kind)}


def _baseline(kind: type[Config]) -> dict[str, Any]:
    """Return the hashed options of a config with the values that its hash does not count."""
    shared = {**{declared.name: declared.default for declared in dataclasses.fields(Config)}, **SHARED_DEFAULTS}
    hashed = (declared for declared in dataclasses.fields(kind) if declared.metadata.get("hashed", True))
    return {declared.name: shared.get(declared.name, declared.default) for declared in hashed}


@lru_cache(maxsize=4096)  # results are looked up by it many times
def _hash(config: Config, unused: tuple[tuple[str, Any], ...]) -> str:
    values = {name: (getattr(config, name), default) for name, default in _baseline(type(config)).items()}
    hashed_values = {name: value for name, (value, default) in values.items() if value != default}
    text = json.dumps({"version": RECIPE_VERSION, **hashed_values, **dict(unused)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def option_names(method: str) -> set[str]:
    """Return the names of all options of a method, given with or without a variant such as -mhe.

    Example:
        >>> from hypersphere.config import option_names
        >>> "queue" in option_names("moco-mhe"), "queue" in option_names("byol")
        (True, False)
    """
    return set(_declared(config_type(parse_name(method, METHODS).method)))


def unknown_option(name: str, methods: Sequence[str]) -> UserError:
    """Return the error for an option that these methods do not have: it names the methods that have it.

    Example:
        >>> from hypersphere.config import unknown_option
        >>> print(unknown_option("tau_end", ["simclr"]))
        `tau_end` is not an option of simclr (byol has it)
    """
    having = [method for method in METHODS if name in option_names(method)]
    if not having:
        known = set.union(*map(option_names, methods))
        return UserError(f"unknown option {name!r}{did_you_mean(name, known)}")
    verb = "has" if len(having) == 1 else "have"
    return UserError(f"`{name}` is not an option of {', '.join(methods)} ({', '.join(having)} {verb} it)")


def coerce_options(method: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in the types of a method's config, without checking whether they agree with each other.

    Args:
        method: Name of the method, with or without a variant such as -mhe; None if it is not known yet: then options
            of methods are returned as they are.
        options: Options by name.

    Raises:
        UserError: If the method does not have an option, or a value has the wrong type.

    Example:
        >>> from hypersphere.config import coerce_options
        >>> coerce_options("byol-mhe", {"energy": 1, "energy_layers": "predictor"})
        {'energy': 1.0, 'energy_layers': ('predictor',)}
    """
    if method is not None:
        return _coerce_options(config_type(parse_name(method, METHODS).method), options)
    shared = {name: value for name, value in options.items() if name in _declared(Config)}
    for name in options.keys() - shared.keys():
        if not any(name in option_names(known) for known in METHODS):
            raise unknown_option(name, [*METHODS])
    return {**options, **_coerce_options(Config, shared)}


def _coerce_options(kind: type[Config], options: Mapping[str, Any]) -> dict[str, Any]:
    declared = _declared(kind)
    for name in options:
        if name not in declared:
            raise unknown_option(name, [kind.method])
    return {name: coerce(name, declared[name][1], value) for name, value in options.items()}


def format_value(value: Any) -> str:
    """Return the value of an option as people write it: ("a", "b") as "a + b"."""
    return " + ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def recipe(method: str, data: str = "cifar10", **options: Any) -> Config:
    """Return the config of a method on a dataset.

    Args:
        method: Name of the method, optionally with -uni (uniformity loss), -mhe (energy) or -uni-mhe.
        data: Name of the dataset, a folder of images or a file of arrays.
        options: Options that differ from the recipe.

    Raises:
        UserError: If the method or the dataset is unknown, or an option is wrong.

    Example:
        >>> from hypersphere.config import recipe
        >>> recipe("byol-mhe", "digits", epochs=20).energy
        10.0
    """
    name, data = parse_name(method, METHODS), coerce("data", str, data)
    kind = method_class(name.method)
    of_data = data_options(data)
    published = published_recipe(kind, data, of_data.get("size"), name.energy)
    of_method = {**recipe_on(kind, "default"), **name.variant, **published}
    # the defaults of methods are for larger images than digits
    parts = (of_method, of_data) if data == "digits" else (of_data, of_method)
    on_data = {} if data == "imagenet" else recipe_on(kind, data)
    config = config_type(name.method)
    chosen = {"data": data, **parts[0], **parts[1], **on_data}
    known = {option: value for option, value in chosen.items() if option in _declared(config)}  # not all in a subclass
    return config(**{**known, **_coerce_options(config, options)})


def photograph_options(method: str, data: str, size: int | None) -> dict[str, Any]:
    """Return what a method changes on images with sides of `size` pixels, as its authors published it for ImageNet."""
    name = parse_name(method, METHODS)
    published = published_recipe(method_class(name.method), data, size, name.energy)
    return {option: value for option, value in published.items() if option in option_names(method)}
