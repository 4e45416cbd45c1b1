"""Export an encoder to files that load anywhere: its weights, a card that describes them, and ONNX."""

import contextlib
import hashlib
import os
import shlex
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import nn

from hypersphere.errors import UserError, first_line
from hypersphere.inference.card import describe
from hypersphere.inference.head import HEAD, Classifier
from hypersphere.inference.hub_folder import README, SETTINGS, for_the_hub, model_card, timm_config
from hypersphere.inference.loading import load, plain, read_card, weights_as_bytes
from hypersphere.nn.weights import CARD, HUB_WEIGHTS, WEIGHTS, exported_weights
from hypersphere.runs.run import Run, load_run
from hypersphere.util.console import notify
from hypersphere.util.files import as_json, make_folder, put_in_place, sha256_of, write_atomically
from hypersphere.util.optional import require
from hypersphere.util.records import read_record
from hypersphere.util.run_files import RUN_RECORD, is_run
from hypersphere.util.text import printable
from hypersphere.util.trust import is_trusted, remember_own_file

ONNX, CLASSIFIER_ONNX = "encoder.onnx", "classifier.onnx"
Format = Literal["safetensors", "onnx", "timm", "hub"]
FOR_THE_HUB: tuple[Format, ...] = ("timm", "hub")
TORCH_FOR_ONNX = "2.9"  # older versions do not work with current versions of onnxscript
TOLERANCE = 1e-4  # between ONNX and torch, relative to the largest feature if that is above 1


def export(
    run: str | Path | Run,
    out: str | Path | None = None,
    format: Format = "safetensors",
    *,
    repository: str | None = None,
    trust: bool = False,
) -> Path:
    """Export the encoder of a run to files that other tools can load.

    The folder gets encoder.safetensors and card.json, which says how to load the weights and preprocess images; with
    `format="onnx"` also encoder.onnx, after its outputs have been compared with those of torch.

    `format="hub"` writes a folder for the Hugging Face Hub: model.safetensors, card.json, a README.md with usage,
    input, results and training, and config.json, with which timm loads it if it has the network.

    Args:
        run: A run or its folder. The checkpoint in the folder is exported. Or a folder that `classify` or `export`
            wrote: of a classifier, ONNX is the whole network, from images to probabilities.
        out: Folder to write to: new or empty, or with an earlier export. By default `export` in the folder of the run,
            or the exported folder itself; `hub` for the Hub.
        format: "safetensors", "onnx" for both, "hub", or "timm": as "hub", but an error if timm cannot load it.
        repository: USER/NAME of the folder on the Hub, for the usage in README.md.
        trust: Whether to import and run code that the run names. Runs that you made do not need it.

    Returns:
        The folder.

    Raises:
        UserError: If the folder cannot be written, ONNX differs from torch or is not installed, or timm does not have
            the network.

    Example:
        >>> import hypersphere as hs
        >>> run = hs.pretrain("byol", data="digits", epochs=1, batch=256, hidden=8, knn_every=0, progress=False)
        >>> folder = hs.export(run, "exported")
        >>> sorted(file.name for file in folder.iterdir())
        ['card.json', 'encoder.safetensors']
        >>> hs.load(folder, device="cpu").features
        128
    """
    if not isinstance(run, Run) and (Path(run) / CARD).is_file() and not is_run(run):
        return _export_again(Path(run), Path(run) if out is None else Path(out), format, trust)
    loaded = load_run(run.path if isinstance(run, Run) else run, "cpu", trust=trust)
    folder = loaded.path / ("hub" if format in FOR_THE_HUB else "export") if out is None else Path(out)
    _prepare(folder, format)
    encoder = plain(loaded.encoder)
    card = describe(loaded, encoder)
    if not card["metrics"] and loaded.labelled:
        command = f"hypersphere evaluate {shlex.quote(str(loaded.path))}"
        notify(f"the card has no metrics, since step {loaded.step:,} has not been evaluated: {command}")
    blob = weights_as_bytes(encoder)
    weights = HUB_WEIGHTS if format in FOR_THE_HUB else WEIGHTS
    card["weights"] = {"file": weights, "sha256": hashlib.sha256(blob).hexdigest()}
    texts: dict[str, bytes] = {}
    if format in FOR_THE_HUB:
        card = for_the_hub(card)
        texts = _hub_files(loaded, encoder, card, format, repository)
    with put_in_place(folder / CARD, alone=True) as scratch:  # one export at a time, and the card comes last
        if format == "onnx":
            write_onnx(encoder, card["input"], folder / ONNX)
            card["onnx"] = {"file": ONNX, "sha256": sha256_of(folder / ONNX), "input": "images", "output": "features"}
        for name, text in ({weights: blob} | texts).items():
            write_atomically(folder / name, text)
        scratch.write_bytes(as_json(card))
    remember_own_file(folder / CARD)
    return folder


def _export_again(source: Path, folder: Path, format: Format, trust: bool) -> Path:
    """Copy an exported folder, and write its ONNX file with `format` onnx; `folder` may be the source itself."""
    here, weights = folder.resolve() == source.resolve(), exported_weights(source).name
    if format in FOR_THE_HUB:
        raise UserError(f"`format` {format} needs the run, and {source} is exported already: pass the run's folder")
    if here and format != "onnx":
        raise UserError(f"{source} is exported already: pass `format` onnx, or another `out`")
    if here:
        _check_onnx()
    else:
        _prepare(folder, format, "classifier" in read_card(source / CARD))
    loaded = load(source, "cpu", trust=trust)
    card = {name: value for name, value in read_record(source / CARD, dict[str, Any]).items() if name != "onnx"}
    known = is_trusted(source / CARD)
    with put_in_place(folder / CARD, alone=True) as scratch:
        if not here:
            for name in (weights, *([HEAD] if loaded.head else [])):
                write_atomically(folder / name, (source / name).read_bytes())
        if format == "onnx":
            name, output = (ONNX, "features") if loaded.head is None else (CLASSIFIER_ONNX, "probabilities")
            network = loaded.encoder if loaded.head is None else Classifier(loaded.encoder, loaded.head).eval()
            write_onnx(network, card["input"], folder / name, output)
            card["onnx"] = {"file": name, "sha256": sha256_of(folder / name), "input": "images", "output": output}
        scratch.write_bytes(as_json(card))
    if known:  # what a stranger's card names is not trusted because it was copied
        remember_own_file(folder / CARD)
    return folder


def _hub_files(
    run: Run, encoder: nn.Module, card: dict[str, Any], format: Format, repository: str | None
) -> dict[str, bytes]:
    """README.md, and config.json: that of timm if it has the network."""
    settings, in_timm = {"library": "hypersphere", "encoder": card["encoder"]}, False
    try:
        settings, in_timm = timm_config(run.config, encoder, card["input"]), True
    except UserError as reason:
        if format == "timm":
            raise
        notify(f"timm will not load this folder: {first_line(reason).removesuffix(': use `format` hub')}")
    return {README: model_card(run, card, in_timm, repository).encode(), SETTINGS: as_json(settings)}


def files_of(folder: Path) -> list[str]:
    """The files of an exported folder, as its card names them, and those for the Hub."""
    card = read_record(folder / CARD, dict[str, Any])
    named = [card[part]["file"] for part in ("weights", "onnx", "classifier") if part in card]
    return sorted([CARD, *named, *(name for name in (README, SETTINGS) if (folder / name).is_file())])


def _prepare(folder: Path, format: Format, classifier: bool = False) -> None:
    if format not in get_args(Format):
        raise UserError(f"`format` must be one of {', '.join(get_args(Format))}, got {format!r}")
    other = WEIGHTS if format in FOR_THE_HUB else HUB_WEIGHTS
    if (folder / CARD).is_file() and (folder / other).exists():
        raise UserError(f"{folder / other} is an export in another `format`: choose another `out`, or remove it")
    check_replaceable(folder, classifier)
    onnx = folder / (CLASSIFIER_ONNX if classifier else ONNX)
    if onnx.exists() and format != "onnx":
        raise UserError(f"{onnx} has older weights: overwrite it with `format` onnx, or choose another `out`")
    if format == "onnx":
        _check_onnx()
    make_folder(folder)


def check_replaceable(folder: Path, classifier: bool) -> None:
    """Check that a folder is new or empty, or has an earlier export of this kind, which may be replaced.

    Raises:
        UserError: If it has anything else.
    """
    if not folder.is_dir():
        return
    if (folder / RUN_RECORD).exists():
        raise UserError(f"`out` {folder} is a run: choose another folder")
    if (folder / CARD).is_file():
        if classifier != (found := "classifier" in read_card(folder / CARD)):
            kind = "a classifier" if found else "an exported encoder"
            raise UserError(f"`out` {folder} is {kind}, which would be lost: choose another folder")
        return
    unfinished = [WEIGHTS, HEAD, ONNX, CLASSIFIER_ONNX, HUB_WEIGHTS]  # of an export that was killed before its card
    if (folder / HUB_WEIGHTS).is_file():
        unfinished += [README, SETTINGS]
    names = sorted(file.name for file in folder.iterdir() if file.name not in unfinished)
    if others := [name for name in names if not name.startswith(".") and not name.endswith(".part")]:
        raise UserError(f"`out` {folder} has other files, such as {printable(others[0])}: choose an empty folder")


def write_onnx(encoder: nn.Module, sizes: dict[str, Any], file: Path, output: str = "features") -> None:
    """Write an ONNX file for batches of any size, if its output agrees with that of torch."""
    shape = (sizes["channels"], sizes["size"], sizes["size"])
    some = torch.randn(5, *shape, generator=torch.Generator().manual_seed(0))
    with put_in_place(file) as scratch:
        _convert(encoder, some[:2], scratch, output)
        for batch in (1, 5):
            _compare(encoder, some[:batch], scratch, output)


def _check_onnx() -> None:
    if torch.__version__ < TORCH_FOR_ONNX:  # compares versions, not strings
        raise UserError(f"`format` onnx needs torch {TORCH_FOR_ONNX} or newer, found {torch.__version__}")
    for package in ("onnx", "onnxruntime", "onnxscript"):
        require(package, "`format` onnx", "onnx onnxruntime onnxscript")


def _convert(encoder: nn.Module, images: torch.Tensor, file: Path, output: str) -> None:
    options: Any = {"dynamic_shapes": ({0: torch.export.Dim("batch")},), "external_data": False, "verbose": False}
    names: Any = {"input_names": ["images"], "output_names": [output]}
    quietly = warnings.catch_warnings(action="ignore")  # the exporter warns about its own code
    with quietly, open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        try:
            torch.onnx.export(encoder, (images,), file, dynamo=True, **options, **names)
        except torch.onnx.OnnxExporterError as error:
            versions = f"torch {torch.__version__} and onnxscript {version('onnxscript')}"
            reason = first_line(error.__cause__ or error)
            raise UserError(f"{versions} cannot export this encoder to ONNX: try newer versions ({reason})") from None


def _compare(encoder: nn.Module, images: torch.Tensor, file: Path, output: str) -> None:
    import onnxruntime  # type: ignore[import-untyped]

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    try:
        (found,) = session.run([output], {"images": images.numpy()})
    except Exception as error:  # of a class that onnxruntime does not publish
        advice = "use x.shape[0] instead of len(x) in its forward"
        raise UserError(f"the ONNX file fails for a batch of {len(images)} ({first_line(error)}): {advice}") from None
    with torch.no_grad():
        wanted = encoder(images)
    furthest = float((torch.from_numpy(found) - wanted).abs().max())
    if not furthest <= TOLERANCE * max(1.0, float(wanted.abs().max())):
        raise UserError(f"ONNX was not written: it differs from torch by {furthest:.1e} in a batch of {len(images)}")
