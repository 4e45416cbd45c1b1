"""A method's recipe on whatever data one names, by what is found there."""

import os
from pathlib import Path
from typing import Any

from hypersphere.config import Config, coerce_options, option_names, photograph_options, recipe
from hypersphere.data import Images, Listing
from hypersphere.data.arrays import read_arrays
from hypersphere.data.folder import deepest_folder, labelled_below, shown
from hypersphere.data.lists import parts_of
from hypersphere.data.shards import is_shards
from hypersphere.data.survey import survey
from hypersphere.errors import UserError
from hypersphere.methods import METHODS, method_of
from hypersphere.methods.recipes import parse_name
from hypersphere.presets import folder_options, is_folder
from hypersphere.util.progress import tell
from hypersphere.util.written import is_arrays, is_reference, reference_to

FEW_LETTERS = 60  # in which names of classes are told


def recipe_for(method: str, data: str | os.PathLike[str] = "cifar10", **options: Any) -> Config:
    """A method's recipe on a data set, or on a folder: by what is found there, which is told."""
    data = os.fspath(data) if isinstance(data, os.PathLike) else data
    if not isinstance(data, str):
        data = _reference(data)
    where, options = whole(data), coerce_options(method, options)  # a mistake is told before anything is looked for
    if is_arrays(where):
        return _recipe_for_arrays(method, where, options)
    if not is_folder(where):
        return recipe(method, where, **options)
    files = parts_of(where, options.get("labels"))["train"]
    found = survey(files, options.get("white"))
    if len(files) < 2:
        raise UserError(f"{where} holds one image: learning takes two or more")
    config = _recipe_by_size(method, where, found.images, found.sides[1], options)
    groups = "" if files.groups is None else f"; {len(files.groups.unique()):,} groups, each held out as a whole or not"
    closed = f"; folders that could not be read: {len(files.closed)}" if files.closed else ""
    tell(f"{where}: {found}; {_classes_told(files)}{groups}{_deeper_told(where, files)}{closed}")
    return located(config)


def located(config: Config) -> Config:
    """As a run keeps it: found again from any other folder."""
    labels, root = (name and _path(str(name)) for name in (config.labels, config.root))
    return config.replace(data=whole(config.data), labels=labels, root=root)


def whole(data: str) -> str:
    """The whole path of files; names of data sets, of code and of shards elsewhere as they are."""
    in_files_here = is_folder(data) or (is_arrays(data) and not is_reference(data))
    return _path(data) if in_files_here and "://" not in data else data


def _path(name: str) -> str:
    return os.path.abspath(os.path.expanduser(name))


def _reference(data: Any) -> str:
    reference = reference_to(data)
    if reference is None:
        function = "a function at the top of a module that gives arrays (package.module:function)"
        wanted = f"a name, a folder, a .npz file (np.savez), or {function}"
        raise UserError(f"`data` must be {wanted}, not {type(data).__name__}")
    return reference


def _recipe_for_arrays(method: str, where: str, options: dict[str, Any]) -> Config:
    train = read_arrays(where)["train"]
    height, width = train.pixels.shape[2:]
    config = _recipe_by_size(method, where, len(train), min(height, width), options)
    tell(f"{where}: {len(train):,} images of {height} × {width} pixels; {_classes_told(train)}")
    return config


def _recipe_by_size(method: str, where: str, images: int, side: int, options: dict[str, Any]) -> Config:
    by_size = folder_options(images, side, options.get("size"))
    kind = method_of(parse_name(method, METHODS).method)
    by_size |= {name: value for name, value in kind.options_for(images).items() if name in option_names(method)}
    if "lr" in kind.recipes.get("default", {}):  # that of a folder is for LARS
        del by_size["lr"]
    return recipe(method, where, **{**by_size, **photograph_options(method, where, by_size["size"]), **options})


def _classes_told(files: Listing | Images) -> str:
    if not files.classes:
        return "no labels"
    names = shown(", ".join(files.classes))
    without = 0 if files.labels is None else int((files.labels < 0).sum())
    told = f"{len(files.classes)} classes" + f": {names}" * (len(names) <= FEW_LETTERS)
    return told + f"; {without:,} of the images without a label" * (without > 0)


def _deeper_told(where: str, files: Listing) -> str:
    """Classes are looked for in the folder given. Where all lies below one folder in it, they may be there."""
    if files.classes or is_shards(where) or (deepest := deepest_folder(files)) == Path(where):
        return ""
    classes = labelled_below(deepest, files).classes
    look = f"; the {len(classes)} folders in {shown(deepest)} look like classes: give that folder to have labels"
    return look * bool(classes)
