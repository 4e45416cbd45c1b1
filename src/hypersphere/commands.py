"""What each command of the command line does with its words."""

import dataclasses
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import tyro

from hypersphere.config import PRESETS, Config, is_folder, recipe
from hypersphere.errors import UserError
from hypersphere.launch import is_first
from hypersphere.options import parse, peek, take_word, take_words
from hypersphere.probes import PROBES, TRANSFER_PROBES, Probe

COMMANDS: dict[str, tuple[Callable[[list[str]], None], str]] = {}


def command(summary: str) -> Callable[[Callable[[list[str]], None]], Callable[[list[str]], None]]:
    def register(function: Callable[[list[str]], None]) -> Callable[[list[str]], None]:
        COMMANDS[function.__name__] = (function, summary)
        return function

    return register


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


@command("METHOD   learn an encoder, by a method such as byol-mhe: see hypersphere methods")
def pretrain(words: list[str]) -> None:
    if any(word.partition("=")[0] == "--method" for word in words):
        raise UserError("the method is said without --method: hypersphere pretrain METHOD …")
    method = take_word(words, PretrainOptions, "METHOD")
    data, resume = peek(words, "--data"), peek(words, "--resume")
    if method is None and resume is None and not {"-h", "--help"} & set(words):
        raise UserError(f"say which method to train: hypersphere pretrain METHOD … ({', '.join(PRESETS)})")
    if method is not None and peek(words, "--regularize") == "mhe" and not method.endswith("-mhe"):
        method += "-mhe"
    if resume is None:
        default = _recipe(method or "byol", data or "cifar10", peek(words, "--labels"))
    else:
        from hypersphere.run import agreeing, go_on, load_config, with_preset

        saved = load_config(resume)
        default = with_preset(saved, method)
    about = (
        f"Learn an encoder from unlabelled images. METHOD: {', '.join(PRESETS)}.\n\n"
        f"The defaults depend on METHOD and --data: these are of {default.title} on {default.data}."
    )
    options = PretrainOptions.of(default, resume)
    config = parse(PretrainOptions, words, "hypersphere pretrain METHOD", about, options).config
    if resume is None:
        from hypersphere.run import start

        run = start(config.replace(data=default.data))  # of a folder, its whole path
    else:
        run = go_on(Path(resume), agreeing(saved, config, resume))
    if is_first():
        print(f"{run.path}: {run.config.title} on {run.config.data}, {run.step} updates in {run.seconds:.0f} s")
        print(f"next: hypersphere {'evaluate' if run.labelled else 'diagnose'} {run.path}")


def _recipe(method: str, data: str, labels: str | None) -> Config:
    if not is_folder(data):
        return recipe(method, data)
    from hypersphere.sets import recipe_for

    return recipe_for(method, data, labels=labels)


@dataclasses.dataclass(frozen=True)
class EvaluateOptions:
    # What to measure; linear is the paper's. fine-tune trains a copy of the whole network on all labels, semi-10 and
    # semi-1 on 10 % and 1 % of them.
    probes: tuple[Probe, ...] = PROBES
    # Other data sets, on which to measure instead of the run's own: by linear-cached and knn, if --probes is not said.
    transfer: tuple[str, ...] = ()
    # On which images (None: those the run held out).
    holdout: Literal["validation", "test"] | None = None
    # auto: the GPU if there is one.
    device: str = "auto"
    # Folder of the data files (None: the run's).
    root: Path | None = None


@command("RUN      measure an encoder: linear probes, k-NN, few-shot, fine-tuning, transfer")
def evaluate(words: list[str]) -> None:
    path = take_word(words, EvaluateOptions, "RUN")
    about = "Measure what can be read from a run's encoder. RUN: the folder that pretrain wrote."
    default = EvaluateOptions(probes=PROBES if peek(words, "--transfer") is None else TRANSFER_PROBES)
    options = parse(EvaluateOptions, words, "hypersphere evaluate RUN", about, default)
    if path is None:
        raise UserError("say which run to evaluate: hypersphere evaluate RUN")
    from hypersphere.run import load_run

    run = load_run(path, options.device)
    if options.root is not None:
        run.config = run.config.replace(root=options.root)
    found = run.measure(options.probes, options.holdout, transfer=options.transfer, progress=True)
    steps = run.steps
    unfinished = f", update {run.step} of {steps}" if run.step < steps else ""
    holdout = options.holdout or run.config.holdout
    of = f" of {', '.join(options.transfer)}" if options.transfer else ""
    _print_evaluation(found, f"{run.config.title} on {run.config.data}{unfinished}, {holdout} images{of}")
    run.keep(found, options.holdout)
    print(f"written to {run.path / 'evaluation.json'}")


def _print_evaluation(found: dict[str, dict[str, float]], title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("probe", title=title)
    table.add_column("top-1 %", justify="right")
    table.add_column("top-5 %", justify="right")
    for name, values in found.items():
        if "top1" in values:
            interval = f" ± {values['interval']:.2f}" if "interval" in values else ""
            top5 = f"{values['top5']:.2f}" if "top5" in values else "–"
            table.add_row(_probe_title(name, values), f"{values['top1']:.2f}{interval}", top5)
    Console().print(table)
    for name, values in found.items():
        if "uniformity" in values:
            whose = name.removesuffix("sphere") + "features"
            shape = f"uniformity {values['uniformity']:.3f}, effective rank {values['effective_rank']:.1f}"
            print(f"{whose}: {shape}")


def _probe_title(name: str, values: dict[str, float]) -> str:
    if "k" in values:
        return name.removesuffix("knn") + f"{values['k']}-NN"
    return f"{name} ({values['labels']} labels)" if "labels" in values else name


@dataclasses.dataclass(frozen=True)
class DiagnoseOptions:
    # Data set whose held-out images an encoder is shown (None: the run's; for a model, the digits of scikit-learn).
    data: str | None = None
    # How many (None: 2000 of a run's data, 256 for a model).
    images: int | None = None
    # The encoder that a checkpoint is of, such as torchvision/resnet50 or timm/vit_small_patch16_224.
    encoder: str | None = None
    # Take the weights along that the library has for a model, fetching them if need be.
    pretrained: bool = False
    # Folder of the data files (None: the run's, or $HYPERSPHERE_DATA, or ~/.cache/hypersphere/data).
    root: Path | None = None
    # auto: the GPU if there is one.
    device: str = "auto"
    # Write everything into this JSON file as well.
    out: Path | None = None


@command("X        is a representation healthy? X: a run, checkpoint, model's name, or embeddings")
def diagnose(words: list[str]) -> None:
    target = take_word(words, DiagnoseOptions, "X")
    about = (
        "Look at a representation: is it collapsed, how is it spread over the sphere, which layers are redundant?\n\n"
        "X: a run's folder; embeddings (.npy, .npz, .parquet); a checkpoint (.pt, .safetensors) with --encoder; or a\n"
        "model of torchvision or timm by name."
    )
    options = parse(DiagnoseOptions, words, "hypersphere diagnose X", about, DiagnoseOptions())
    if target is None:
        raise UserError("say what to diagnose: hypersphere diagnose X")
    if options.images is not None and options.images < 2:
        raise UserError(f"`images` must be at least 2, not {options.images}")
    from hypersphere.diagnosis import diagnose as look
    from hypersphere.files import write_json
    from hypersphere.report.diagnosis import print_diagnosis

    found = look(target, **{name: value for name, value in vars(options).items() if name != "out"})
    print_diagnosis(found)
    if options.out is not None:
        write_json(options.out, found.to_json())
        print(f"written to {options.out}")


@dataclasses.dataclass(frozen=True)
class DemoOptions:
    # Where to write.
    out: Path = Path("runs/demo")
    # Seed of all three runs.
    seed: int = 0
    # Passes over the digits (None: the recipe's).
    epochs: int | None = None


@command("         three encoders learnt from handwritten digits, in minutes on a CPU")
def demo(words: list[str]) -> None:
    take_word(words, DemoOptions)
    about = "Pretrain BYOL, BYOL + Uni and BYOL-MHE on embedded digits and compare them."
    options = parse(DemoOptions, words, "hypersphere demo", about, DemoOptions())
    from hypersphere.demo import demo as run_demo

    run_demo(**vars(options))


@dataclasses.dataclass(frozen=True)
class DataOptions:
    # Folder of the data files (None: $HYPERSPHERE_DATA, or ~/.cache/hypersphere/data).
    root: Path | None = None


@command("[NAME]   list the data sets, or fetch one")
def data(words: list[str]) -> None:
    name = take_word(words, DataOptions, "NAME")
    about = "List the data sets; with NAME, fetch that one and check it."
    options = parse(DataOptions, words, "hypersphere data [NAME]", about, DataOptions())
    from hypersphere.data import FILE_SOURCES, SOURCES, default_root, list_data, load_data

    if name is None:
        summaries = {n: s.summary for n, s in SOURCES.items()} | {n: s.summary for n, s in FILE_SOURCES.items()}
        for key, summary in summaries.items():
            print(f"{key:15} {summary}")
        return
    get = list_data if name in FILE_SOURCES else load_data
    rest, validation = map(len, get(name, holdout="validation", root=options.root))
    train, test = map(len, get(name, holdout="test", root=options.root))
    split = f"{rest:,} + {validation:,} for validation"
    where = options.root or default_root()
    print(f"{name} in {where}: {train:,} training images ({split}), {test:,} test images")


@dataclasses.dataclass(frozen=True)
class BenchOptions:
    # Methods whose update is timed; those with an energy also with it on all layers.
    methods: tuple[str, ...] = ("byol", "byol-mhe")
    # What to measure: a whole update and its stages, the time to the first one, the linear probes, the energy of many
    # neurons, views on one core.
    parts: tuple[Literal["step", "first", "probes", "energy", "views"], ...] = (
        "step",
        "first",
        "probes",
        "energy",
        "views",
    )
    # The same work through another library as well, where it is installed.
    peer: Literal["lightly"] | None = None
    # Data set.
    data: str = "cifar10"
    # Images per update (None: the recipe's).
    batch: int | None = None
    # Arithmetic of the networks.
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    # auto: the GPU if there is one.
    device: str = "auto"
    # Folder of the data files (None: $HYPERSPHERE_DATA, or ~/.cache/hypersphere/data).
    root: Path | None = None
    # Folder of the figures, a file a machine.
    out: Path = Path("benchmarks")

    @property
    def configs(self) -> list[Config]:
        given: dict[str, Any] = {"precision": self.precision, "device": self.device, "root": self.root}
        given |= {} if self.batch is None else {"batch": self.batch}
        plain = [recipe(method, self.data, **given) for method in self.methods]
        layers = ("encoder", "projector", "predictor")
        return plain + [config.replace(energy_layers=layers) for config in plain if config.energy]


@command("         how fast this machine does it")
def bench(words: list[str]) -> None:
    take_word(words, BenchOptions)
    about = "Time updates, probes, views and energies here, beside what the machine could do."
    options = parse(BenchOptions, words, "hypersphere bench", about, BenchOptions())
    if not options.methods or not options.parts:
        raise UserError("`methods` and `parts` must name at least one each")
    configs = options.configs
    from hypersphere.bench import bench as measure

    found, file = measure(configs, options.parts, options.peer is not None, options.out)
    for part, rows in found.items():
        _print_figures(part, rows)
    print(f"written to {file}")


def _print_figures(part: str, rows: dict[str, dict[str, float]]) -> None:
    from rich.console import Console
    from rich.table import Table

    names = list(dict.fromkeys(name for figures in rows.values() for name in figures))
    table = Table(part, *rows, title=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for name in names:
        table.add_row(name.replace("_", " "), *(_figure(figures.get(name)) for figures in rows.values()))
    Console().print(table)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


@dataclasses.dataclass(frozen=True)
class ReproduceOptions:
    # Runs of each cell, with seeds 0, 1, …
    seeds: int = 3
    # Cells, by the names that the list shows (none: all of the table).
    cells: tuple[str, ...] = ()
    # Another length: a protocol kept apart from the published one (None: the published one).
    epochs: int | None = None
    # The hyperparameters that were tuned on validation images, instead of the paper's.
    tuned: bool = False
    # Say what would run, and how long it would take.
    dry_run: bool = False
    # auto: the GPU if there is one.
    device: str = "auto"
    # Folder of the data files (None: $HYPERSPHERE_DATA, or ~/.cache/hypersphere/data).
    root: Path | None = None
    # Folder of the results.
    results: Path = Path("results")
    # Folder of the runs, from which an interrupted one goes on.
    runs: Path = Path("runs/paper")
    # The page of all results, written anew after each run.
    page: Path = Path("RESULTS.md")


@command("[NAME]   the paper's tables and figures: what is known, what is missing; run it")
def reproduce(words: list[str]) -> None:
    name = take_word(words, ReproduceOptions, "NAME")
    about = "List the paper's tables and figures with the state of each cell; with NAME, run what that one lacks."
    options = parse(ReproduceOptions, words, "hypersphere reproduce [NAME]", about, ReproduceOptions())
    if options.seeds < 1 or (options.epochs is not None and options.epochs < 1):
        raise UserError("`seeds` and `epochs` must be at least 1")
    from hypersphere.paper.cells import TUNED, Protocol
    from hypersphere.paper.state import Evidence
    from hypersphere.report.terminal import list_jobs, list_tables
    from hypersphere.reproduce import missing, named, run_jobs, write_page
    from hypersphere.results import read_results

    if options.tuned and not TUNED:
        raise UserError("nothing has been tuned yet: leave `tuned` out")
    evidence, protocol = Evidence(read_results(options.results)), Protocol(options.epochs, options.tuned)
    if name is None:
        list_tables(evidence, options.seeds, protocol, options.device)
        return
    wanted = named(name)
    jobs = list(missing(wanted, evidence, options.seeds, options.cells, protocol))
    if options.dry_run:
        list_jobs(jobs, options.device)
        return
    where = {"device": options.device, "root": options.root}
    run_jobs(jobs, options.results, options.runs, options.page, **where)
    write_page(options.results, options.page)
    print(f"{len(jobs)} runs: results in {options.results}, all of them in {options.page}")


@dataclasses.dataclass(frozen=True)
class ReportOptions:
    # The page to write.
    out: Path = Path("report.html")
    # auto: the GPU if there is one.
    device: str = "auto"
    # Folder of the data files (None: each run's).
    root: Path | None = None


@command("RUN …    one page of some runs: curves, energies, densities, neighbours, a map, configs")
def report(words: list[str]) -> None:
    paths = take_words(words, ReportOptions)
    about = "Write one HTML page that compares runs and needs no network. RUN …: folders that pretrain wrote."
    options = parse(ReportOptions, words, "hypersphere report RUN …", about, ReportOptions())
    if not paths:
        raise UserError("say which runs to report: hypersphere report RUN …")
    from hypersphere.report.page import write_report

    write_report(paths, options.out, options.device, options.root, progress=True)
    print(f"written to {options.out}")


@dataclasses.dataclass(frozen=True)
class EmbedOptions:
    # The file to write, .parquet or .npz; -o for short.
    out: Path | None = None
    # Processes that decode image files (None: one for each core beside a GPU, else none).
    workers: int | None = None
    # auto: the GPU if there is one.
    device: str = "auto"


@command("RUN …    the vector of every image below a folder, into a file")
def embed(words: list[str]) -> None:
    words = ["--out" if word == "-o" else word for word in words]
    places = take_words(words, EmbedOptions)
    about = (
        "Write path and vector of every image below the folder IMAGES, as .parquet or .npz.\n\n"
        "RUN: a run's folder, or one that export wrote."
    )
    options = parse(EmbedOptions, words, "hypersphere embed RUN IMAGES -o FILE", about, EmbedOptions())
    if len(places) != 2 or options.out is None:
        raise UserError("say what encodes which images into which file: hypersphere embed RUN IMAGES -o FILE.parquet")
    from hypersphere.embed import embed as write

    run, images = places
    found = write(run, images, options.out, device=options.device, workers=options.workers, progress=True)
    print(
        f"{options.out}: {found.images:,} images, {found.dimensions} numbers each; {len(found.unreadable)} unreadable"
    )


@dataclasses.dataclass(frozen=True)
class NeighboursOptions:
    # How many to show of each query.
    count: int = 10
    # Write a page with the pictures as well.
    page: Path | None = None
    # Where the run or the exported encoder lies that made FILE (None: where it was then).
    encoder: Path | None = None
    # auto: the GPU if there is one.
    device: str = "auto"


@command("FILE …   the images of such a file that are most like others")
def neighbours(words: list[str]) -> None:
    places = take_words(words, NeighboursOptions)
    about = "Print the images in FILE, which embed wrote, with the highest cosine with each QUERY, an image."
    prog = "hypersphere neighbours FILE QUERY …"
    options = parse(NeighboursOptions, words, prog, about, NeighboursOptions())
    if len(places) < 2:
        raise UserError("say where to look, and for what: hypersphere neighbours FILE QUERY …")
    from hypersphere.data.folder import shown
    from hypersphere.gallery import check_page, write_gallery
    from hypersphere.neighbours import neighbours as nearest

    if options.page is not None:
        check_page(options.page)
    file, *queries = places
    found = nearest(file, queries, count=options.count, encoder=options.encoder, device=options.device)
    for one in found:
        print(f"{shown(one.query)}:")
        for path, cosine in one.neighbours:
            print(f"  {cosine:.4f}  {shown(path)}")
    if options.page is not None:
        write_gallery(options.page, found, file)
        print(f"written to {options.page}")


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    # Folder to write to (None: export in the run's folder).
    out: Path | None = None
    # onnx: an ONNX file as well, for batches of any size.
    format: Literal["safetensors", "onnx"] = "safetensors"


@command("RUN      the encoder's weights with a card, to load without hypersphere; ONNX")
def export(words: list[str]) -> None:
    path = take_word(words, ExportOptions, "RUN")
    about = "Write a run's encoder as encoder.safetensors and card.json, which says how to load and feed it."
    options = parse(ExportOptions, words, "hypersphere export RUN", about, ExportOptions())
    if path is None:
        raise UserError("say which run to export: hypersphere export RUN")
    from hypersphere.export import export as write

    folder = write(path, options.out, options.format)
    print(f"written to {folder}: {', '.join(sorted(file.name for file in folder.iterdir()))}")


@dataclasses.dataclass(frozen=True)
class MethodsOptions:
    pass


@command("[METHOD] list the methods with their papers and defaults, or tell all about one")
def methods(words: list[str]) -> None:
    name = take_word(words, MethodsOptions, "METHOD")
    about = (
        "List the methods: paper, idea, and what their options are on CIFAR-10 where not as BYOL's. With METHOD, also\n"
        "what was published and what is different here. Any has variants METHOD-uni, METHOD-mhe and METHOD-uni-mhe."
    )
    parse(MethodsOptions, words, "hypersphere methods [METHOD]", about, MethodsOptions())
    chosen = recipe(name).method if name is not None else None
    from inspect import getdoc, getmodule

    from hypersphere.methods import METHODS

    for key, kind in METHODS.items() if chosen is None else [(chosen, METHODS[chosen])]:
        first_line = (getattr(getmodule(kind), "__doc__", None) or key).splitlines()[0]
        print(f"{name or key}: {first_line}")
        if chosen is not None and kind.__doc__:
            print(f"\n{getdoc(kind)}\n")
        print(_defaults(recipe(name or key)))


def _defaults(config: Config) -> str:
    """What most decides a run, and what a method changes."""
    shown = ["epochs", "batch", "optimizer", "lr", "weight_decay"]
    shown += [option for option in config.differences(Config()) if option not in (*shown, "method")]
    values = {option: getattr(config, option) for option in shown}
    said = [f"{option} {' + '.join(value) if isinstance(value, tuple) else value}" for option, value in values.items()]
    return textwrap.fill(", ".join(said), 100, initial_indent="    ", subsequent_indent="    ")
