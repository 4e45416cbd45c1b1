"""hypersphere pretrain: train an encoder on images without labels."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from tyro.conf import Positional, arg

from hypersphere.cli.help import describe_options, print_help, wants_help
from hypersphere.cli.next_step import print_next
from hypersphere.cli.parsing import given_options, missing_argument
from hypersphere.errors import as_command_line
from hypersphere.util.launcher import is_main_process

if TYPE_CHECKING:
    from hypersphere.config import Config

# in the help: the options that people use first, then groups
FIRST = ("data", "labels", "encoder", "init", "epochs", "batch", "lr", "seed", "device", "out", "resume", "dry_run")
GROUPS: dict[str, tuple[str, ...]] = {
    "data": ("holdout", "root", "white", "mean", "std", "frames", "size"),
    "augmentation": ("policy", "crop_min", "small_crops", "small_side", "small_area", "randaugment"),
    "encoder": ("stem", "norm", "freeze_patches", "dimensions"),
    "method": (),  # all options that are in no other group
    "regularization": (
        *("energy", "energy_layers", "energy_s", "energy_metric", "energy_half_space", "energy_projection"),
        *("uniformity", "uniformity_t", "variance_covariance", "koleo", "sigreg", "spherical_mmd"),
        *("orthogonality", "orthogonality_kind", "regularizer", "regularizer_weight"),
    ),
    "optimization": (
        *("optimizer", "micro_batch", "warmup", "weight_decay", "weight_decay_end", "momentum", "trust", "clip"),
    ),
    "machine": ("precision", "workers", "cache", "kernels", "graph", "compile", "layout", "timeout"),
    "output": ("save_every", "log_every", "knn_every", "track", "on_collapse"),
}


@dataclasses.dataclass(frozen=True)
class PretrainOptions:
    """Arguments of pretrain beside the options of a run."""

    method: Annotated[str | None, Positional, arg(metavar="[METHOD]")] = None
    """Method, such as byol-mhe: `hypersphere methods` lists them. Your own: package.module:Class. None: the one that
    did best in recorded runs on similar images."""
    resume: Path | None = None
    """Continue the run in this folder. Other options must agree with those that it was started with."""
    dry_run: bool = False
    """Check everything, measure a few updates, print the plan, all options and an estimate, and stop. Nothing is
    written."""


def run(words: Sequence[str]) -> None:
    given = parse_run_options("pretrain", PretrainOptions, words)
    if wants_help(words):
        _print_help(given)
    if not {"method", "data", "resume"} & given.keys():
        raise missing_argument("pretrain", "--data")
    from hypersphere.runs.pretraining import pretrain

    if given.get("dry_run"):
        print(as_command_line(repr(pretrain(**given))))
        return
    run = pretrain(**given)
    if is_main_process():
        steps = f"{run.step} step{'' if run.step == 1 else 's'} in {run.seconds:.0f} s"
        print(f"{run.path}: {run.config.title} on {run.config.data}, {steps}")
        print_next("evaluate" if run.labelled else "diagnose", run.path)


def parse_run_options(command: str, own: type, words: Sequence[str]) -> dict[str, Any]:
    """Parse the words of a command that takes the options of a run.

    Args:
        command: Name of the command.
        own: Dataclass of the command's other options, with METHOD among them.
        words: Words of the command line. A request for help among them is ignored.

    Returns:
        Values by name, of the options that are given.
    """
    words = [word for word in words if not wants_help([word])]
    hints = get_type_hints(own, include_extras=True)
    method = given_options(command, {**run_option_types(None), **hints}, words, allow_unknown=True).get("method")
    return given_options(command, {**run_option_types(method), **hints}, words)


def run_option_types(method: str | None) -> dict[str, Any]:
    """Type of each option that a run of any method may have, by name.

    What the chosen method does not have is refused later, with the names of the methods that have it.
    """
    from hypersphere.config import config_type, option_names
    from hypersphere.methods import METHODS
    from hypersphere.methods.recipes import parse_name

    methods = [*METHODS]
    if method is not None and ":" in method:  # the user's own
        methods.append(parse_name(method, METHODS).method)
    hints = {name: get_type_hints(config_type(name), include_extras=True) for name in methods}
    return {name: hints[m][name] for m in methods for name in option_names(m) if name != "method"}


def default_config(given: Mapping[str, Any]) -> "Config":
    """The recipe of the given method on the given data; without data, BYOL's if there is no method."""
    from hypersphere.runs.recipes import recipe_for
    from hypersphere.sweeps.grid import DECIDE_DEFAULTS

    usual = {} if "data" in given else {"method": "byol"}
    return recipe_for(**{**usual, **{name: given[name] for name in DECIDE_DEFAULTS if name in given}})


def _print_help(given: Mapping[str, Any]) -> None:
    default = default_config(given)
    options = {**describe_options(default), **describe_options(PretrainOptions)}
    about = (
        "Train an encoder on images without labels.\n\n"
        f"Defaults depend on METHOD and --data: these are for {default.title} on {default.data}."
    )
    print_help("pretrain", about, options, ("method", *FIRST), GROUPS)
