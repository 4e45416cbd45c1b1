"""Speedrun: how long this machine takes to train an encoder to a given accuracy without labels.

Each attempt is a process of its own. Its time is that from the start of the process to the result of the linear probe.
"""

import itertools
import json
import math
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from hypersphere.config import Config
from hypersphere.errors import RunsFailed, UserError
from hypersphere.runs.recommend import NOT_ALONE
from hypersphere.util.files import make_folder, write_json
from hypersphere.util.records import read_record
from hypersphere.util.statistics import Estimate, estimate

PROBE = "linear"  # the paper's, with augmentations: not the one on stored features
MARKS = (85.0, 90.74)  # linear accuracy on CIFAR-10: a short mark, and the paper's BYOL
SEEDS = 5
RECORDS = Path("benchmarks/speedrun")
_CHILD = "from hypersphere.bench.speedrun import child; child()"


@dataclass(frozen=True)
class Attempts:
    """The attempts of one recipe, one for each seed.

    Attributes:
        target: Accuracy to reach, in %.
        config: Config of the runs; its seed is the first one.
        accuracies: Linear accuracy of each seed, in %.
        seconds: Time of each seed.
        training: Seconds of each seed that were spent on training.
        about: Code, versions and device.
        log: Measurements of the first seed while it trained.
    """

    target: float
    config: Config
    accuracies: list[float]
    seconds: list[float]
    training: list[float]
    about: dict[str, str]
    log: list[dict[str, float]]

    @property
    def accuracy(self) -> Estimate:
        return estimate(self.accuracies) or Estimate(math.nan)

    @property
    def time(self) -> Estimate:
        return estimate(self.seconds) or Estimate(math.nan)

    @property
    def counts(self) -> str:
        """Why the attempts are no record; empty if they are one."""
        config, reasons = self.config, []
        if config.holdout != "test":
            reasons.append("measured on validation images, not on the test set")
        if (config.data, config.encoder, config.stem) != ("cifar10", "torchvision/resnet18", "cifar"):
            reasons.append("not a ResNet-18 on CIFAR-10")
        if config.init is not None or config.method in NOT_ALONE:
            reasons.append("trained with labels or from other weights")
        if len(self.accuracies) < SEEDS:
            reasons.append(f"{len(self.accuracies)} of {SEEDS} seeds")
        if not self.accuracy.mean >= self.target:
            reasons.append(f"{self.accuracy.mean:.2f} % is below {self.target:g} %")
        return "; ".join(reasons)

    def to_json(self) -> dict[str, Any]:
        """The content of its file."""
        fields = vars(self) | {"config": self.config.replace(root=None, out=None).to_json(), "hash": self.config.hash}
        return fields | {"record": not self.counts}


class _Record(TypedDict):
    target: float
    config: dict[str, Any]
    accuracies: list[float]
    seconds: list[float]
    training: list[float]
    about: dict[str, str]
    log: list[dict[str, float]]


def speedrun(config: Config, target: float, seeds: Sequence[int], out: Path, records: Path = RECORDS) -> Attempts:
    """Train and evaluate with each seed in a fresh process, one after the other, and write what they took.

    Args:
        config: Config of the runs. No label is read before the probe: it switches off the k-NN accuracy in training.
        target: Accuracy to reach, in %.
        seeds: Seeds of the attempts.
        out: Folder of the runs.
        records: Folder of the file with the times, the log and the code's version.

    Raises:
        UserError: If an option cannot be used.
        RunsFailed: If an attempt failed.
    """
    make_folder(records)
    config = config.replace(knn_every=0, seed=seeds[0])
    found = list(_attempts(config, seeds, out))
    attempts = Attempts(
        target,
        config,
        [one["accuracy"] for one in found],
        [one["seconds"] for one in found],
        [one["training"] for one in found],
        found[0]["about"],
        found[0]["log"],
    )
    write_json(_free(records, f"{config.data_name}-{target:g}-{config.hash}"), attempts.to_json())
    return attempts


def _free(folder: Path, name: str) -> Path:
    """A file that does not exist: earlier attempts with the same options stay."""
    numbered = (folder / f"{name}{f'-{n}' * (n > 1)}.json" for n in itertools.count(1))
    return next(file for file in numbered if not file.exists())


def _attempts(config: Config, seeds: Sequence[int], out: Path) -> Iterator[dict[str, Any]]:
    for seed in seeds:
        folder = out / f"{config.hash}-seed{seed}"
        if folder.exists():
            raise UserError(f"{folder} exists: remove it, or choose another `out`")
        wanted = pickle.dumps(config.replace(seed=seed, out=folder))
        began = time.perf_counter()
        ended = subprocess.run([sys.executable, "-c", _CHILD], input=wanted, stdout=subprocess.PIPE, check=False)
        seconds = time.perf_counter() - began
        if ended.returncode:
            raise RunsFailed(f"the attempt with seed {seed} failed (status {ended.returncode})")
        found = json.loads(ended.stdout.splitlines()[-1]) | {"seconds": round(seconds, 2)}
        print(f"seed {seed}: {found['accuracy']:.2f} % in {seconds:.1f} s", flush=True)
        yield found


def child() -> None:
    """Make one attempt in this process: a config on standard input, its result as the last line on standard output."""
    from hypersphere.runs.machine import pick_device, provenance
    from hypersphere.runs.pretraining import start

    config: Config = pickle.load(sys.stdin.buffer)
    try:
        run = start(config, progress=False)
        accuracy = run.evaluate([PROBE], config.holdout)[PROBE]["top1"]
    except UserError as error:
        print(f"hypersphere: {error}", file=sys.stderr)
        sys.exit(2)
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    log = [{name: value for name, value in line.items() if isinstance(value, int | float)} for line in lines]
    about = provenance(pick_device(config.device))
    print(json.dumps({"accuracy": accuracy, "training": round(run.seconds, 2), "about": about, "log": log}))


def read_attempts(records: Path = RECORDS) -> list[Attempts]:
    """All attempts in a folder: those of each target by their time, records first."""
    found = []
    for file in sorted(records.glob("*.json")):
        saved = read_record(file, _Record)
        fields = {name: value for name, value in saved.items() if name in Attempts.__dataclass_fields__}
        found.append(Attempts(**{**fields, "config": Config.from_json(saved["config"])}))  # type: ignore[arg-type]
    return sorted(found, key=lambda one: (one.target, bool(one.counts), one.time.mean))
