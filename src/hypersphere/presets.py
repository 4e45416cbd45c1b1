"""Options by method and data set: what the papers have, and recipes for small images."""

import inspect
import math
from typing import Any

from hypersphere.errors import UserError, similar
from hypersphere.util.written import is_reference, referred_to

_SGD: dict[str, Any] = {
    "uniformity": 0.0,
    "energy": 0.0,
    "batch": 512,
    "optimizer": "sgd",
    "lr": 0.03,
    "warmup": 0,
    "weight_decay": 5e-4,
}
_MOCO: dict[str, Any] = {
    **_SGD,
    "method": "moco",
    "epochs": 200,
    "tau": 0.99,
    "hidden": 512,
    "projection": 128,
    "temperature": 0.1,
    "energy_layers": ("projector",),
}
_CLUSTERING: dict[str, Any] = {
    "uniformity": 0.0,
    "energy": 0.0,
    "energy_layers": ("projector",),
    "small_crops": 4,
    "hidden": 2048,
    "projection": 128,
    "temperature": 0.1,
    "lr": 0.6,
}

# method → what it changes
PRESETS: dict[str, dict[str, Any]] = {
    "byol": {"method": "byol", "uniformity": 0.0, "energy": 0.0},
    "byol-uni": {"method": "byol", "uniformity": 0.125, "energy": 0.0},
    "byol-mhe": {"method": "byol", "uniformity": 0.0, "energy": 10.0},
    "simclr": {"method": "simclr", "uniformity": 0.0, "energy": 0.0, "energy_layers": ("projector",)},
    "simsiam": {
        **_SGD,
        "method": "simsiam",
        "epochs": 800,
        "hidden": 2048,
        "projection": 2048,
    },
    "moco": _MOCO,
    "infomin": {
        **_MOCO,
        "method": "infomin",
        "temperature": 0.15,
        "energy_layers": ("projector", "jigsaw_projector"),
    },
    "barlow": {
        "method": "barlow",
        "uniformity": 0.0,
        "energy": 0.0,
        "energy_layers": ("projector",),
        "lr": 0.2,
        "weight_decay": 1.5e-6,
        "hidden": 2048,
        "projection": 2048,
        "layers": 3,
    },
    "supervised": {
        **_SGD,
        "method": "supervised",
        "epochs": 164,
        "batch": 128,
        "lr": 0.2,
        "weight_decay": 1e-4,
        "energy_layers": ("encoder", "classifier"),
    },
    "swav": {**_CLUSTERING, "method": "swav", "energy_layers": ("projector", "prototypes")},
    "dino": {
        **_CLUSTERING,
        "method": "dino",
        "energy_layers": ("projector", "prototypes"),
        "projection": 256,
        "prototypes": 4096,
        "tau": 0.996,
        "lr": 0.3,
        "weight_decay": 1e-4,
    },
    "deepcluster": {**_CLUSTERING, "method": "deepcluster"},
    "obow": {
        **_CLUSTERING,
        "method": "obow",
        "tau": 0.99,
        "energy_layers": ("projector", "generators"),
        "prototypes": 2048,
        "temperature": 0.125,
        "optimizer": "sgd",
        "batch": 512,
        "lr": 0.03,
        "weight_decay": 1e-4,
    },
}

# photographs; the learning rate is BYOL's for 300 epochs of ImageNet
_PHOTOGRAPHS: dict[str, Any] = {
    "encoder": "torchvision/resnet50",
    "stem": "imagenet",
    "size": 224,
    "batch": 512,
    "lr": 0.3,
}

# data set → what it changes
DATA: dict[str, dict[str, Any]] = {
    "cifar10": {},
    "cifar100": {},
    # the paper changes the stem "for the CIFAR datasets" only
    "stl10": {"stem": "imagenet", "epochs": 1000, "lr": 0.45, "tau": 0.996},
    "imagenet": _PHOTOGRAPHS,
    "imagenette": _PHOTOGRAPHS,
    "imagenette-160": {**_PHOTOGRAPHS, "size": 128},
    "imagenette-full": _PHOTOGRAPHS,
    "digits": {
        "encoder": "hypersphere/digits",
        "hidden": 512,
        "projection": 64,
        "epochs": 80,
        "batch": 128,
        "optimizer": "adamw",
        "lr": 0.008,
        "warmup": None,
        "weight_decay": 0.05,
        "knn_every": 20,
    },
}


# method → what it changes on digits, whose own options stand before those of PRESETS
ON_DIGITS: dict[str, dict[str, Any]] = {
    "simsiam": {"bottleneck": 64},
    "moco": {"queue": 512},
    "infomin": {"queue": 512, "jigsaw": 2},
    "barlow": {"projection": 256},
    "swav": {"prototypes": 64, "small_crops": 0},
    "dino": {"prototypes": 256, "small_crops": 0, "tau": 0.99},
    "deepcluster": {"prototypes": 64, "small_crops": 0},
    "obow": {"prototypes": 256, "small_crops": 0},
}


_MULTI_CROP: dict[str, Any] = {
    "small_crops": 6,
    "small_side": 0.43,  # 96 of 224 pixels
    "small_area": (0.05, 0.14),
    "crop_min": 0.14,
}
_SWAV: dict[str, Any] = {
    **_MULTI_CROP,
    "epochs": 800,
    "batch": 4096,
    "lr": 0.3,
    "prototypes": 3000,
    "policy": "simclr",
}
_MOCO_V2: dict[str, Any] = {"batch": 256, "weight_decay": 1e-4, "queue": 65536, "tau": 0.999, "hidden": 2048}

# method → what it changes on ImageNet, as its authors published it for a ResNet-50
ON_IMAGENET: dict[str, dict[str, Any]] = {
    "byol": {"energy": 1.0, "energy_layers": ("encoder", "projector", "predictor")},  # where there is energy
    "simclr": {
        "epochs": 100,
        "batch": 4096,
        "temperature": 0.1,
        "hidden": 2048,
        "projection": 128,
        "policy": "simclr",
    },
    "simsiam": {
        "epochs": 100,
        "lr": 0.05,
        "weight_decay": 1e-4,
        "layers": 3,
        "predictor_decays": False,
        "policy": "moco",
    },
    "moco": {**_MOCO_V2, "temperature": 0.2, "policy": "moco"},
    "infomin": {**_MOCO_V2, "policy": "infomin", "randaugment": 2},
    "barlow": {"epochs": 1000, "batch": 2048, "hidden": 8192, "projection": 8192},
    "supervised": {"epochs": 90, "batch": 256, "lr": 0.1},
    "swav": _SWAV,
    "deepcluster": _SWAV,
    "dino": {
        **_MULTI_CROP,
        "small_crops": 8,
        "epochs": 100,
        "batch": 512,
        "optimizer": "sgd",
        "lr": 0.03,
        "prototypes": 65536,
    },
    "obow": {
        "small_crops": 5,
        "small_side": 0.43,
        "small_area": (0.08, 0.14),
        "epochs": 200,
        "batch": 256,
        "prototypes": 8192,
        "policy": "moco",
        "crop_min": 0.08,
    },
}
# of these, what other photographs, which are fewer, do not take
OF_MANY_IMAGES = ("epochs", "batch", "queue", "prototypes", "tau", "hidden", "projection")


SIZES = (32, 64, 96, 128, 160, 224)  # of the encoder's input, for images of any size


def folder_options(images: int, side: int, size: int | None = None) -> dict[str, Any]:
    """What a folder's recipe has by default: by how many images there are, and how many pixels their sides have, if no
    size of the input is said."""
    size = size or max([size for size in SIZES if size <= 1.15 * side], default=SIZES[0])
    small = size <= 64
    batch = 2 ** max(3, min(9, int(math.log2(images / 4)))) if images >= 32 else max(2, images // 2)
    return {
        "size": size,
        "encoder": "torchvision/resnet50" if size >= 160 and images >= 10_000 else "torchvision/resnet18",
        "stem": "cifar" if small else "imagenet",
        "batch": batch,
        "epochs": 300 if images < 50_000 else 200 if images < 500_000 else 100,
        "lr": 1.5 if small else 0.3,
    }


def preset(method: str) -> dict[str, Any]:
    """Of a method; any has variants with uniformity loss (-uni), energy (-mhe) or both (-uni-mhe)."""
    if not isinstance(method, str) or method in PRESETS:
        return named("method", method, PRESETS)
    base = method.removesuffix("-mhe").removesuffix("-uni")
    if base not in PRESETS and not is_reference(base):
        return named("method", method, PRESETS)
    added = {"-uni": PRESETS["byol-uni"]["uniformity"], "-mhe": PRESETS["byol-mhe"]["energy"]}
    given = method.removeprefix(base)
    return {
        **PRESETS.get(family(base), {"energy_layers": (HEADS,)}),
        **own_defaults(base),
        "method": base,
        "uniformity": added["-uni"] * ("-uni" in given),
        "energy": added["-mhe"] * ("-mhe" in given),
    }


# fields of a config that a method of one's own may take, each with the default that it has there
OF_METHODS = {"hidden", "projection", "norm", "tau", "tau_end", "temperature", "teacher_temperature", "teacher_warmup"}
OF_METHODS |= {"predictor", "bottleneck", "predictor_decays", "layers", "redundancy", "queue", "prototypes"}
OF_METHODS |= {"codes_queue", "jigsaw"}


HEADS = "heads"  # in energy_layers: every sub-network but the encoder


def family(method: str) -> str:
    """The method of the project that one of the user's derives from, if any; ours are their own."""
    if not is_reference(method):
        return method
    return next(filter(None, map(_ours, _class(method).__mro__)), "")


def own_defaults(method: str) -> dict[str, Any]:
    """Fields of a config whose defaults an `__init__` of the user's has; not one that is inherited from ours."""
    if not is_reference(method):
        return {}
    kind = _class(method)
    if _ours(next(above for above in kind.__mro__ if "__init__" in vars(above))):
        return {}
    parameters = inspect.signature(kind).parameters.values()
    return {p.name: p.default for p in parameters if p.name in OF_METHODS and p.default is not p.empty}


def _class(reference: str) -> type:
    kind = referred_to(reference)
    if not inspect.isclass(kind):
        raise UserError(f"{reference} must be a subclass of hypersphere.methods.Method")
    return kind


def _ours(kind: type) -> str:
    """The name of a method of the project, whose file has it, too; empty for other classes."""
    package, _, name = kind.__module__.rpartition(".")
    return name if package == "hypersphere.methods" and name in PRESETS else ""


def on_photographs(method: str, data: str, size: int | None) -> dict[str, Any]:
    """What a method changes on ImageNet, and on other images of more than 64 pixels a side."""
    of_method = preset(method)
    base = of_method["method"]
    published = ON_IMAGENET.get(family(base), {}) if size is not None and size > 64 else {}
    left_out = {*own_defaults(base), *(OF_MANY_IMAGES if data != "imagenet" else ())}
    if not of_method["energy"]:
        left_out |= {"energy", "energy_layers"}
    return {name: value for name, value in published.items() if name not in left_out}


def named(option: str, name: Any, table: dict[str, dict[str, Any]]) -> dict[str, Any]:
    variants = "; each also with -uni, -mhe; your own as package.module:Class" if table is PRESETS else ""
    there = ", ".join(table) + variants
    if not isinstance(name, str):
        raise UserError(f"`{option}` must be a name ({there}), not of type {type(name).__name__}")
    if name not in table:
        raise UserError(f"unknown {option} {name!r}{similar(name, table)} (there are {there})")
    return table[name]
