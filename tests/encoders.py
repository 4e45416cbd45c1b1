"""One training run with a small model of every architecture family of timm and torchvision.

    make encoders                                       # all families: half an hour on one core
    python -m tests.encoders --only swin vit --seconds 60
    python -m tests.encoders --page docs/reference/encoders.md

Each model trains for two steps of SimCLR at 64 × 64 pixels, in a process of its own with limits of time and memory.
It is then loaded again, with the same features. What fails is tried at the size for which its library made it.
"""

import argparse
import json
import multiprocessing
import os
import re
import resource
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

import hypersphere as hs
from hypersphere.nn.encoders import sketch
from hypersphere.nn.libraries import torchvision_names

SMALL = 64  # pixels a side
MEMBERS = 8  # of a family whose weights are counted, to find a small one
MEMORY = 8 * 2**30  # bytes of a process
IMAGES = torch.randint(0, 256, (8, 3, SMALL, SMALL), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
SETTINGS: dict[str, Any] = {"epochs": 1, "hidden": 16, "projection": 8, "warmup": 0, "knn_every": 0, "device": "cpu"}


def families() -> Iterator[tuple[str, list[str]]]:
    """The models of each family: those of one file of timm, and those of torchvision whose names begin alike."""
    import timm

    beginnings = {name: re.match("[a-z]+", name).group(0) for name in torchvision_names()}  # type: ignore[union-attr]
    for beginning in sorted(set(beginnings.values())):
        yield (
            f"torchvision {beginning}",
            [f"torchvision/{name}" for name in beginnings if beginnings[name] == beginning],
        )
    for file in timm.list_modules():
        if names := timm.list_models(module=file):
            yield f"timm {file}", [f"timm/{name}" for name in names]


def smallest(names: list[str]) -> str:
    """The model with the fewest weights, of those with the shortest names."""

    def weights(name: str) -> int:
        network = sketch(name)
        return 0 if network is None else sum(weight.numel() for weight in network.parameters())

    sizes = {name: weights(name) for name in sorted(names, key=len)[:MEMBERS]}
    return min((name for name in sizes if sizes[name]), key=sizes.__getitem__, default=names[0])


def trains(name: str, size: int) -> None:
    """Train two steps and load the run. Raises an error if that fails or features change."""
    with tempfile.TemporaryDirectory() as folder:
        run = hs.pretrain(
            "simclr", data=IMAGES, encoder=name, size=size, batch=4, out=f"{folder}/run", progress=False, **SETTINGS
        )
        loaded = hs.load(run.path, device="cpu")
        torch.testing.assert_close(loaded.encode_pixels(IMAGES[:2]), run.encode(IMAGES[:2]), rtol=1e-3, atol=1e-3)


def attempt(names: list[str], answer: Connection) -> None:
    """In a process of its own: send the name of a small model, and what came of it at each size."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    os.nice(5)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    name = smallest(names)
    answer.send(name)
    for size in (SMALL, _made_for(name)):
        answer.send(size)
        try:
            trains(name, size)
        except Exception as error:  # whatever a model raises
            answer.send(str(error).splitlines()[0] if str(error) else type(error).__name__)
        else:
            answer.send("")
            return


def _made_for(name: str) -> int:
    return getattr(sketch(name), "input_size", 224)


def result_of(names: list[str], seconds: float) -> dict[str, Any]:
    """The model of a family, and the sizes that were tried, each with the reason why it failed ("" if it did not)."""
    receiver, sender = (fork := multiprocessing.get_context("fork")).Pipe(duplex=False)
    process = fork.Process(target=attempt, args=(names, sender))
    process.start()
    sender.close()
    heard: list[Any] = []
    until = time.monotonic() + seconds
    try:
        while receiver.poll(max(0, until - time.monotonic())):
            heard.append(receiver.recv())
        heard.append(f"not finished after {seconds:.0f} s")
    except EOFError:
        pass
    finally:
        process.kill()
        process.join()
    model, *rest = heard or (names[0],)
    tried = dict(zip(rest[::2], [*rest[1::2], f"ended with status {process.exitcode}"][: len(rest[::2])], strict=True))
    return {"model": model, "tried": tried}


def page(found: dict[str, dict[str, Any]]) -> str:
    """The results as a page of the documentation."""
    works = {family: f for family, f in found.items() if "" in f["tried"].values()}
    small = {family: f for family, f in works.items() if f["tried"].get(SMALL) == ""}
    lines = [
        "# Encoders that were tried",
        "",
        f"`make encoders` takes a small model of each of {len(found)} architecture families of torchvision and timm.",
        "Each trains for two steps of SimCLR, is saved and loaded again, and must return the same features.",
        "",
        f"{len(works)} families work, {len(small)} of them at {SMALL} × {SMALL} pixels ({_versions()}).",
        "",
        "## What does not work",
        "",
        *_table(["family", "model tried", "reason"], _rows(found, found.keys() - works.keys())),
        "",
        "## What needs another size",
        "",
        f"These models refuse images of {SMALL} × {SMALL} pixels. Pass the size that works as `--size`.",
        "",
        *_table(
            ["family", "model tried", "reason", "size that works"], _rows(found, works.keys() - small.keys(), size=True)
        ),
        "",
        f"## What works at {SMALL} × {SMALL} pixels",
        "",
        *_table(["family", "model tried"], [[family, f"`{f['model']}`"] for family, f in small.items()]),
        "",
    ]
    return "\n".join(lines)


def _rows(found: dict[str, dict[str, Any]], families: set[str], size: bool = False) -> Iterator[list[str]]:
    for family in sorted(families):
        tried = found[family]["tried"]
        reasons = [f"{side} pixels: {_reason(why)}" for side, why in tried.items() if why] or ["it cannot be built"]
        row = [family, f"`{found[family]['model']}`", "; ".join(reasons)]
        yield [*row, str([*tried][-1])] if size else row


def _table(titles: list[str], rows: Iterable[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (titles, ["---"] * len(titles), *rows)]


def _versions() -> str:
    import timm
    import torchvision

    versions = {"timm": timm.__version__, "torchvision": torchvision.__version__, "torch": torch.__version__}
    return ", ".join(f"{name} {version.partition('+')[0]}" for name, version in versions.items())


def _reason(reason: str) -> str:
    inner = re.match(r".*? does not accept the .*? images of .*? \((.*?)\)?(: pass .*)?$", reason)
    return (inner.group(1) if inner else reason).strip().replace("|", "\\|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="families whose names contain one of these words")
    parser.add_argument("--seconds", type=float, default=300, help="limit of time of each model")
    parser.add_argument("--results", type=Path, help="file of the results, which continues what it has")
    parser.add_argument("--page", type=Path, help="write a page of the documentation")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    if options.results is not None and options.results.exists():
        found = json.loads(options.results.read_text())
    for family, names in families():
        if family in found or not any(word in family for word in options.only):
            continue
        began = time.monotonic()
        found[family] = json.loads(json.dumps(result_of(names, options.seconds)))
        tried = "; ".join(f"{size}: {reason or 'works'}" for size, reason in found[family]["tried"].items())
        print(f"{family} ({found[family]['model']}, {time.monotonic() - began:.0f} s): {tried}", flush=True)
        if options.results is not None:
            options.results.write_text(json.dumps(found, indent=1))
    results = {
        family: {**f, "tried": {int(size): why for size, why in f["tried"].items()}} for family, f in found.items()
    }
    if options.page is not None:
        options.page.write_text(page(results))
    failed = [family for family, f in results.items() if "" not in f["tried"].values()]
    print(f"{len(results) - len(failed)} of {len(results)} families train; not: {', '.join(failed) or 'none'}")


if __name__ == "__main__":
    main()
