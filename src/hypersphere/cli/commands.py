"""The registry of commands: a new command is a file in this folder with a `run` function, and a line here."""

import re
from typing import NamedTuple


class Command(NamedTuple):
    """What `hypersphere --help` shows; `cli/NAME.py` has the rest and is imported when the command runs.

    Attributes:
        group: Heading under which the command is listed.
        arguments: Arguments and required options, as in a usage line.
        summary: What the command does: one line that starts with a verb.
    """

    group: str
    arguments: str
    summary: str


COMMANDS: dict[str, Command] = {
    "demo": Command("train", "", "Train three encoders on handwritten digits and compare them"),
    "pretrain": Command("train", "[METHOD] --data DATA", "Train an encoder on images without labels"),
    "sweep": Command("train", "METHOD --over OPTION=VALUE,…", "Train with all combinations of some options"),
    "methods": Command("train", "[METHOD]", "List the methods, describe one, or choose one for images"),
    "data": Command("train", "[DATA]", "List the datasets, download one, or describe images"),
    "evaluate": Command("measure", "RUN", "Measure accuracy: linear probes, k-NN, few-shot, fine-tuning"),
    "diagnose": Command("measure", "TARGET", "Check a run, model or embedding file for collapse and poor spread"),
    "energies": Command("measure", "WEIGHTS", "Show the hyperspherical energy of every layer of a file of weights"),
    "report": Command("measure", "RUN …", "Write an HTML page that compares runs"),
    "embed": Command("use", "RUN IMAGES -o FILE", "Write the embedding of every image in a folder to a file"),
    "neighbours": Command("use", "FILE [QUERY …]", "Find similar images, near-duplicates, clusters and outliers"),
    "classify": Command("use", "RUN", "Make a classifier of an encoder and labelled images"),
    "predict": Command("use", "CLASSIFIER IMAGES …", "Classify images into a table"),
    "export": Command("use", "RUN", "Write the encoder as safetensors or ONNX, with a model card"),
    "reproduce": Command("research", "[NAME]", "Run the paper's tables and figures and show what is missing"),
    "bench": Command("research", "", "Measure how fast this machine trains"),
    "speedrun": Command("research", "[METHOD]", "Time how long training to a given accuracy takes"),
}


def usage(command: str) -> str:
    """The usage line of a command, such as `hypersphere evaluate RUN`."""
    return f"hypersphere {command} {COMMANDS[command].arguments}".rstrip()


def arguments(command: str) -> set[str]:
    """The positional arguments of a command, such as {"RUN", "IMAGES"} of embed; none if there is no such command."""
    shown = COMMANDS[command].arguments if command in COMMANDS else ""
    return set(re.findall("[A-Z]+", re.sub(r"-\S+ \S+", "", shown)))  # without options and their values
