"""hypersphere pretrain: learn an encoder."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import tyro

from hypersphere.cli.options import check_known, parse, peek, take_word
from hypersphere.config import Config, config_type, option_names, recipe
from hypersphere.errors import UserError
from hypersphere.methods import METHODS
from hypersphere.presets import is_folder
from hypersphere.util.launch import is_first
from hypersphere.util.written import is_arrays


@dataclasses.dataclass(frozen=True)
class PretrainOptions(Config):
    resume: Path | None = None
    """Resume the interrupted run in this folder; other options must agree with those it was started with."""
    regularize: Literal["mhe"] | None = None
    """Regularize the energy of the weights: the same as METHOD-mhe."""
    method: tyro.conf.Suppress[tyro.conf.Fixed[Any]] = "byol"

    @classmethod
    def of(cls, config: Config, resume: str | None) -> "PretrainOptions":
        return cls(**vars(config), resume=None if resume is None else Path(resume))

    @property
    def config(self) -> Config:
        return Config(**{name: getattr(self, name) for name in option_names(self.method)})


@dataclasses.dataclass(frozen=True)
class _Said(PretrainOptions):
    """Of the right types; whether they agree depends on defaults, and these on what is found in a folder."""

    def __post_init__(self) -> None: ...


def with_options_of(options: type, *methods: str) -> Any:
    """The options of a command, and of the configs of these methods."""
    bases = (options, *map(config_type, methods))
    return dataclasses.make_dataclass(options.__name__, [], bases=bases, frozen=True)


def pretrain(words: list[str]) -> None:
    if any(word.partition("=")[0] == "--method" for word in words):
        raise UserError("the method is said without --method: hypersphere pretrain METHOD …")
    method = take_word(words, with_options_of(PretrainOptions, *METHODS), "METHOD", strict=False)
    resume = peek(words, "--resume")
    if method is None and resume is None and not {"-h", "--help"} & set(words):
        raise UserError(f"say which method to train: hypersphere pretrain METHOD … ({', '.join(METHODS)})")
    if method is not None and peek(words, "--regularize") == "mhe" and not method.endswith("-mhe"):
        method += "-mhe"
    if resume is None:
        of_data = told_of_data(words)
        if is_folder(of_data["data"]) and not {"-h", "--help"} & set(words):
            _check_early(words, recipe(method or "byol").method)
        default = recipe_of(method or "byol", **of_data)
    else:
        from hypersphere.runs.pretraining import agreeing, go_on, with_preset
        from hypersphere.runs.run import load_config

        saved = load_config(resume)
        if method is None and peek(words, "--regularize") == "mhe" and not saved.energy:
            raise UserError(f"cannot resume {resume}: it began without energy; `resume` alone goes on as it began")
        default = with_preset(saved, method)
    about = (
        f"Learn an encoder from unlabelled images. METHOD: {', '.join(METHODS)}; each also with -uni, -mhe.\n\n"
        f"The defaults depend on METHOD and --data: these are of {default.title} on {default.data}."
    )
    kind = with_options_of(PretrainOptions, default.method)
    check_known(words, kind, [default.method])
    options = kind.of(default, resume)
    config = parse(kind, words, "hypersphere pretrain METHOD", about, options).config
    if resume is None:
        from hypersphere.runs.pretraining import start

        run = start(config)
    else:
        run = go_on(Path(resume), agreeing(saved, config, resume))
    if is_first():
        made = f"{run.step} update{'' if run.step == 1 else 's'} in {run.seconds:.0f} s"
        print(f"{run.path}: {run.config.title} on {run.config.data}, {made}")
        print(f"next: hypersphere {'evaluate' if run.labelled else 'diagnose'} {shlex.quote(str(run.path))}")


def _check_early(words: list[str], method: str) -> None:
    """Before the images of a folder are looked for, which may take long."""
    kind = with_options_of(_Said, method)
    check_known(words, kind, [method])
    said = parse(kind, words, "hypersphere pretrain METHOD", "", kind())
    from hypersphere.runs.pretraining import check_early

    check_early(device=said.device, encoder=said.encoder, init=said.init)


def told_of_data(words: Sequence[str]) -> dict[str, str | None]:
    """What a recipe depends on beside the method."""
    return {name: peek(words, f"--{name}") for name in ("data", "labels", "size", "white")}


def recipe_of(method: str, data: str | None, labels: str | None, **numbers: str | None) -> Config:
    """What is not said otherwise; of a folder, it depends on what is found there and on the size of the input."""
    data = data or "cifar10"
    if not is_folder(data) and not is_arrays(data):
        return recipe(method, data)
    from hypersphere.runs.recipes import recipe_for

    wanted = {name: int(n) for name, n in numbers.items() if n is not None and n.isdecimal() and int(n) > 0}
    return recipe_for(method, data, labels=labels, **wanted)
