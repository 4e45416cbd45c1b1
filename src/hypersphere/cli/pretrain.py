"""hypersphere pretrain: learn an encoder."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import tyro

from hypersphere.cli.options import parse, peek, take_word
from hypersphere.config import Config
from hypersphere.errors import UserError
from hypersphere.presets import PRESETS
from hypersphere.util.launch import is_first


@dataclasses.dataclass(frozen=True)
class PretrainOptions(Config):
    # Go on with the interrupted run in this folder; other options must agree with those it was started with.
    resume: Path | None = None
    # Regularize the energy of the weights: the same as METHOD-mhe.
    regularize: Literal["mhe"] | None = None
    # METHOD says it.
    method: tyro.conf.Suppress[tyro.conf.Fixed[Any]] = "byol"

    @staticmethod
    def of(config: Config, resume: str | None) -> "PretrainOptions":
        return PretrainOptions(**vars(config), resume=None if resume is None else Path(resume))

    @property
    def config(self) -> Config:
        return Config(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Config)})


@dataclasses.dataclass(frozen=True)
class _Said(PretrainOptions):
    """Of the right types; whether they agree depends on defaults, and these on what is found in a folder."""

    def __post_init__(self) -> None: ...


def pretrain(words: list[str]) -> None:
    if any(word.partition("=")[0] == "--method" for word in words):
        raise UserError("the method is said without --method: hypersphere pretrain METHOD …")
    method = take_word(words, PretrainOptions, "METHOD")
    resume = peek(words, "--resume")
    if method is None and resume is None and not {"-h", "--help"} & set(words):
        raise UserError(f"say which method to train: hypersphere pretrain METHOD … ({', '.join(PRESETS)})")
    if method is not None and peek(words, "--regularize") == "mhe" and not method.endswith("-mhe"):
        method += "-mhe"
    if resume is None:
        of_data = told_of_data(words)
        if not {"-h", "--help"} & set(words):
            _check_early(words)
        default = recipe_of(method or "byol", **of_data)
    else:
        from hypersphere.runs.pretraining import agreeing, go_on, with_preset
        from hypersphere.runs.run import load_config

        saved = load_config(resume)
        if method is None and peek(words, "--regularize") == "mhe" and not saved.energy:
            raise UserError(f"cannot resume {resume}: it began without energy; `resume` alone goes on as it began")
        default = with_preset(saved, method)
    about = (
        f"Learn an encoder from unlabelled images. METHOD: {', '.join(PRESETS)}; each also with -uni, -mhe.\n\n"
        f"The defaults depend on METHOD and --data: these are of {default.title} on {default.data}."
    )
    options = PretrainOptions.of(default, resume)
    config = parse(PretrainOptions, words, "hypersphere pretrain METHOD", about, options).config
    if resume is None:
        from hypersphere.runs.pretraining import start

        run = start(config)
    else:
        run = go_on(Path(resume), agreeing(saved, config, resume))
    if is_first():
        made = f"{run.step} update{'' if run.step == 1 else 's'} in {run.seconds:.0f} s"
        print(f"{run.path}: {run.config.title} on {run.config.data}, {made}")
        print(f"next: hypersphere {'evaluate' if run.labelled else 'diagnose'} {shlex.quote(str(run.path))}")


def _check_early(words: list[str]) -> None:
    """Before the images of a folder are looked for, which may take long."""
    said = parse(_Said, words, "hypersphere pretrain METHOD", "", _Said())
    from hypersphere.runs.pretraining import check_early

    check_early(device=said.device, encoder=said.encoder, init=said.init)


def told_of_data(words: Sequence[str]) -> dict[str, str | None]:
    """What a recipe depends on beside the method."""
    return {name: peek(words, f"--{name}") for name in ("data", "labels", "size", "white")}


def recipe_of(method: str, data: str | None, labels: str | None, **numbers: str | None) -> Config:
    """What is not said otherwise; of a folder, it depends on what is found there and on the size of the input."""
    data = data or "cifar10"
    from hypersphere.runs.recipes import recipe_for

    wanted = {name: int(n) for name, n in numbers.items() if n is not None and n.isdecimal() and int(n) > 0}
    return recipe_for(method, data, labels=labels, **wanted)
