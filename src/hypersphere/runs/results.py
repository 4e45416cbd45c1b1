"""Results as JSON files: `results/*.json` of tables and sweeps, and `evaluation.json` in the folder of a run.

JSON has no NaN. A measure that is not finite is written as null, and null is read as NaN. Each file has a checksum of
its content, which is compared when it is read; files of version 0.2.0 and older have none.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypersphere.config import Config
from hypersphere.errors import UserError
from hypersphere.evaluate import Evaluation
from hypersphere.util.console import notify_once
from hypersphere.util.files import as_json, lock_folder, make_folder, write_json
from hypersphere.util.optional import require

EVALUATION_FILE = "evaluation.json"
CHECKSUM = "sha256"  # field of both kinds of files


def run_name(cell: str, config: Config, hash: str | None = None) -> str:
    """Name of one run of a cell: of its folder, and of its file in `results/`.

    Args:
        cell: Name of the table cell, or of the point of a sweep.
        config: Config of the run.
        hash: Hash of the config when the run was made, if it is another one today.
    """
    return f"{cell}-{config.epochs}-seed{config.seed}-{hash or config.hash}"


@dataclass(frozen=True)
class Result:
    """Everything measured about one run of a cell. A run that diverged has a reason and no evaluation."""

    cell: str
    config: Config
    hash: str
    evaluation: Evaluation
    seconds: float  # of training
    about: dict[str, str]  # provenance: code, versions, device
    diverged: str | None = None
    history: list[dict[str, float]] = field(default_factory=list)  # measured during training, by epoch
    angles: list[int] | None = None  # of features on the circle: number of test images in each half degree

    @property
    def file(self) -> str:
        """Name of its file in `results/`."""
        return f"{run_name(self.cell, self.config, self.hash)}.json"

    def write(self, folder: Path) -> Path:
        """Write the result into `folder`, which is made if it does not exist, and return the path of the file."""
        make_folder(folder)
        _write(folder / self.file, self.to_json())
        return folder / self.file

    def to_json(self) -> dict[str, Any]:
        """The content of its file. Fields without a value are left out, and so are folders of this machine."""
        config = {name: value for name, value in self.config.to_json().items() if name not in ("root", "out")}
        record = {"cell": self.cell, "config": config, "hash": self.hash, "seconds": round(self.seconds, 1)}
        record |= {"about": self.about, "evaluation": self.evaluation}
        optional = {"history": self.history or None, "diverged": self.diverged, "angles": self.angles}
        return record | {name: value for name, value in optional.items() if value is not None}

    @staticmethod
    def from_json(record: dict[str, Any]) -> "Result":
        """The result that a file holds."""
        parsed = {
            "config": Config.from_json(record["config"]),
            "evaluation": _evaluation(record["evaluation"]),
            "history": [_numbers(line) for line in record.get("history", ())],
        }
        return Result(**record | parsed)


def read_results(folder: Path) -> list[Result]:
    """Read all results in a folder, in the order of the names of their files.

    Raises:
        UserError: If a file is damaged.
    """
    found = []
    for file in sorted(folder.glob("*.json")):
        try:
            found.append(Result.from_json(_read(file)))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"{file} is damaged ({error}): repair or remove it") from None
    return found


def load_results(folder: str | os.PathLike[str] = "results", *, as_frame: bool = False) -> Any:
    """Load the results of a sweep or of the paper's tables, one record per run.

    Args:
        folder: A folder of results (`results/` of `reproduce`), or of a sweep, which has them in `results`.
        as_frame: Whether to return a pandas DataFrame.

    Returns:
        A list of dictionaries, or a DataFrame with them as rows, in the order of the names of the files. `cell`,
        `title`, `hash`, `seconds`, `diverged` and `file` describe a run; its options have their own names, such as
        `lr`; measures are `PROBE/MEASURE`, such as `linear/top1` and `sphere/uniformity`; `history` is a list of what
        was measured during training.

    Raises:
        UserError: If there are no results, a file is damaged, or pandas is not installed for `as_frame`.

    Example:
        >>> import hypersphere as hs
        >>> runs = hs.sweep("byol", "digits", over={"seed": [0, 1]}, epochs=1, hidden=8, probes=["knn"], workers=0)
        >>> [(record["seed"], record["title"], "knn/top1" in record) for record in hs.load_results("runs/sweep")]
        [(0, 'byol', True), (1, 'byol', True)]
    """
    path = Path(folder)
    if not path.is_dir():
        raise UserError(f"{path} does not exist: expected the folder of a sweep, or of results")
    inside = path / "results"
    results = read_results(path) if any(path.glob("*.json")) or not inside.is_dir() else read_results(inside)
    if not results:
        raise UserError(f"{path} has no results: expected the folder of a sweep, or of results")
    records = [_record(result) for result in results]
    if not as_frame:
        return records
    return require("pandas", "`as_frame`", "pandas").DataFrame(records)


def _record(result: Result) -> dict[str, Any]:
    config = result.config
    about = {"cell": result.cell, "title": config.title, "hash": result.hash, "seconds": result.seconds}
    about |= {"diverged": result.diverged, "file": result.file}
    measures = {
        f"{probe}/{measure}": value for probe, values in result.evaluation.items() for measure, value in values.items()
    }
    return about | config.to_json() | measures | {"history": result.history}


def read_evaluations(run: Path) -> dict[str, Any]:
    """Read the evaluation.json of a run: `hash` and `step` of the encoder, and its evaluations by held-out set.

    Anything in it that is no evaluation is ignored. Empty if the file does not exist, or, with a message, if it is
    damaged.
    """
    file = run / EVALUATION_FILE
    try:
        record = _read(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        notify_once(f"{file} is damaged ({error}) and ignored: hypersphere evaluate {run} measures it again")
        return {}
    state = {name: record[name] for name in ("hash", "step") if name in record}
    return state | {name: _evaluation(_dicts(values)) for name, values in _dicts(record).items()}


def evaluations_of(run: Path, hash: str, step: int) -> dict[str, Evaluation]:
    """Evaluations in a run's evaluation.json, by held-out set. Empty if they are of another state of the encoder."""
    record = read_evaluations(run)
    return record if (record.pop("hash", None), record.pop("step", None)) == (hash, step) else {}


def add_evaluation(run: Path, hash: str, step: int, holdout: str, evaluation: Evaluation) -> None:
    """Write an evaluation into a run's evaluation.json. Other results of the same encoder stay.

    Args:
        run: Folder of the run.
        hash: Hash of its config.
        step: Step of the encoder that was evaluated. Evaluations of another step are removed.
        holdout: The held-out set.
        evaluation: Measures by probe, which replace those of the same probes.
    """
    with lock_folder(run, patience=10, lock=".evaluation.lock"):
        known = evaluations_of(run, hash, step)
        known[holdout] = known.get(holdout, {}) | evaluation
        _write(run / EVALUATION_FILE, {"hash": hash, "step": step, **known})


def _write(file: Path, record: dict[str, Any]) -> None:
    write_json(file, record | {CHECKSUM: _checksum(json.loads(as_json(record)))})


def _read(file: Path) -> dict[str, Any]:
    record = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    expected = record.pop(CHECKSUM, None)
    if expected is not None and expected != _checksum(record):
        raise ValueError("its content does not match its checksum")
    return record


def _checksum(record: dict[str, Any]) -> str:
    """SHA-256 of a record as JSON, whatever the order of its names."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _dicts(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: value for name, value in record.items() if isinstance(value, dict)}


def _evaluation(saved: Mapping[str, Any]) -> Evaluation:
    return {probe: _numbers(measures) for probe, measures in saved.items()}


def _numbers(measures: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in measures.items()}
