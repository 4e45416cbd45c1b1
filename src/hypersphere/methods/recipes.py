"""The names of methods with their variants, and the options that a method has by default on a dataset."""

import inspect
from typing import Any, NamedTuple

from hypersphere.errors import UserError, did_you_mean
from hypersphere.methods.base import HEADS, Method
from hypersphere.util.references import is_reference

UNIFORMITY, ENERGY = 0.125, 10.0  # weights of the variants -uni and -mhe
PHOTOGRAPH = 64  # images with more pixels a side take the options published for ImageNet,
# except for these, which depend on its number of images
FOR_MANY_IMAGES = frozenset({"epochs", "batch", "queue", "prototypes", "tau", "hidden", "projection"})

# what several methods have in their recipes
SGD: dict[str, Any] = {"batch": 512, "optimizer": "sgd", "lr": 0.03, "warmup": 0, "weight_decay": 5e-4}
SMALL_HEADS: dict[str, Any] = {"hidden": 512, "projection": 64}  # for an encoder of digits
# for transformers, as MoCo v3 (Chen, Xie and He, 2021) trains them, also with BYOL, SimCLR and SwAV
TRANSFORMER: dict[str, Any] = {
    "optimizer": "adamw",
    "lr": 1.5e-4,
    "warmup": None,
    "weight_decay": 0.1,
    "freeze_patches": True,
}
MULTI_CROP: dict[str, Any] = {
    "small_crops": 6,
    "small_side": 0.43,  # 96 of 224 pixels
    "small_area": (0.05, 0.14),
    "crop_min": 0.14,
}


class MethodName(NamedTuple):
    """The name of a method, and the weights of the regularizers that its suffix stands for."""

    method: str
    uniformity: float
    energy: float

    @property
    def variant(self) -> dict[str, Any]:
        return self._asdict()


def parse_name(name: Any, known: dict[str, type[Method]]) -> MethodName:
    """Split a name such as "byol-uni-mhe" into the method and its regularizers.

    Raises:
        UserError: If there is no such method.
    """
    choices = f"{', '.join(known)}; each also with -uni, -mhe; your own as package.module:Class"
    if not isinstance(name, str):
        raise UserError(f"`method` must be a name ({choices}), got an object of type {type(name).__name__}")
    method = name if name in known else name.removesuffix("-mhe").removesuffix("-uni")
    if not is_method(name, known):
        raise UserError(f"unknown method {name!r}{did_you_mean(name, known)} (choose from {choices})")
    suffix = name.removeprefix(method)
    return MethodName(method, UNIFORMITY * ("-uni" in suffix), ENERGY * ("-mhe" in suffix))


def is_method(name: str, known: dict[str, type[Method]]) -> bool:
    """Whether this is the name of a method, with or without a variant, or a reference to one."""
    plain = name.removesuffix("-mhe").removesuffix("-uni")
    return plain in known or is_reference(plain)


def recipe_on(kind: type[Method], key: str) -> dict[str, Any]:
    """Return a method's recipe on one dataset, without options whose defaults a subclass has changed since."""
    changed = _redeclared(kind)
    usual: dict[str, Any] = {"energy_layers": (HEADS,)} if key == "default" else {}
    return usual | {name: value for name, value in kind.recipes.get(key, {}).items() if name not in changed}


def published_recipe(kind: type[Method], data: str, size: int | None, energy: float) -> dict[str, Any]:
    """Return what a method changes on photographs: on ImageNet, and on other images of more than 64 pixels a side."""
    if size is None or size <= PHOTOGRAPH:
        return {}
    left_out = set() if data == "imagenet" else set(FOR_MANY_IMAGES)
    if not energy:
        left_out |= {"energy", "energy_layers"}
    return {name: value for name, value in recipe_on(kind, "imagenet").items() if name not in left_out}


def transformer_recipe(kind: type[Method]) -> dict[str, Any]:
    """Return what a method changes if the encoder is a transformer; nothing if its author chose only an optimizer."""
    chosen = {"optimizer", "lr"} & kind.recipes.get("default", {}).keys()
    if "transformer" in kind.recipes or chosen:
        return recipe_on(kind, "transformer")
    return TRANSFORMER


def _redeclared(kind: type[Method]) -> set[str]:
    """Return the options that classes below the one with the recipes declare, with defaults of their own."""
    names: set[str] = set()
    owner: Any
    for owner in kind.__mro__:
        if "recipes" in vars(owner):
            break
        if "Options" in vars(owner):
            names |= inspect.get_annotations(owner.Options).keys()
        if "__init__" in vars(owner):
            parameters = inspect.signature(owner.__init__).parameters.values()
            names |= {one.name for one in parameters if one.default is not one.empty}
    return names - {"epochs"}
