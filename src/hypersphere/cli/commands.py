"""The command line's commands: what each does with its words, in the order that they are listed."""

from collections.abc import Callable

from hypersphere.cli.bench import bench
from hypersphere.cli.data import data
from hypersphere.cli.demo import demo
from hypersphere.cli.diagnose import diagnose
from hypersphere.cli.embed import embed
from hypersphere.cli.evaluate import evaluate
from hypersphere.cli.export import export
from hypersphere.cli.methods import methods
from hypersphere.cli.neighbours import neighbours
from hypersphere.cli.pretrain import pretrain
from hypersphere.cli.report import report
from hypersphere.cli.reproduce import reproduce
from hypersphere.cli.sweep import sweep

COMMANDS: dict[str, tuple[Callable[[list[str]], None], str]] = {
    "pretrain": (pretrain, "METHOD   learn an encoder, by a method such as byol-mhe: see hypersphere methods"),
    "evaluate": (evaluate, "RUN      measure an encoder: linear probes, k-NN, few-shot, fine-tuning, transfer"),
    "diagnose": (diagnose, "X        is a representation healthy? X: a run, checkpoint, model's name, or embeddings"),
    "demo": (demo, "         three encoders learnt from handwritten digits, in minutes on a CPU"),
    "data": (data, "[NAME]   list the data sets, or fetch one"),
    "bench": (bench, "         how fast this machine does it"),
    "reproduce": (reproduce, "[NAME]   the paper's tables and figures: what is known, what is missing; run it"),
    "sweep": (sweep, "METHOD   runs with all combinations of some options, on all GPUs or a cluster, compared"),
    "report": (report, "RUN …    one page of some runs: curves, energies, densities, neighbours, a map, configs"),
    "embed": (embed, "RUN …    the vector of every image below a folder, into a file"),
    "neighbours": (neighbours, "FILE …   the images of such a file that are most like others"),
    "export": (export, "RUN      the encoder's weights with a card, to load without hypersphere; ONNX"),
    "methods": (methods, "[METHOD] list the methods with their papers and defaults, or tell all about one"),
}
