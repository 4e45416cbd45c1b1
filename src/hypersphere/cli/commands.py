"""The command line's commands: what each does with its words, in the order that they are listed."""

from collections.abc import Callable
from importlib import import_module


def _command(name: str) -> Callable[[list[str]], None]:
    """Return a function that imports the file of a command when it runs, so that others need not wait for torch."""
    return lambda words: getattr(import_module(f"hypersphere.cli.{name}"), name)(words)


_SUMMARIES = {
    "pretrain": "METHOD   learn an encoder, by a method such as byol-mhe: see hypersphere methods",
    "evaluate": "RUN      measure an encoder: linear probes, k-NN, few-shot, fine-tuning, transfer",
    "diagnose": "X        is a representation healthy? X: a run, checkpoint, model's name, or embeddings",
    "demo": "         three encoders learnt from handwritten digits, in minutes on a CPU",
    "data": "[NAME]   list the data sets, or fetch one",
    "bench": "         how fast this machine does it",
    "reproduce": "[NAME]   the paper's tables and figures: what is known, what is missing; run it",
    "sweep": "METHOD   runs with all combinations of some options, on all GPUs or a cluster, compared",
    "report": "RUN …    one page of some runs: curves, energies, densities, neighbours, a map, configs",
    "embed": "RUN …    the vector of every image below a folder, into a file",
    "neighbours": "FILE …   the images of such a file that are most like others",
    "export": "RUN      the encoder's weights with a card, to load without hypersphere; ONNX",
    "methods": "[METHOD] list the methods with their papers and defaults, or tell all about one",
}

COMMANDS = {name: (_command(name), summary) for name, summary in _SUMMARIES.items()}
