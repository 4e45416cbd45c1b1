"""The log of a run: metrics.jsonl, and TensorBoard files if tensorboard is installed."""

import contextlib
import json
from pathlib import Path
from typing import Any

from hypersphere.errors import UserError
from hypersphere.train.trackers import Trackers
from hypersphere.util.files import write_atomically
from hypersphere.util.records import check_record


class Log:
    """Writes metrics.jsonl: lines of {"step": …, name: value …}, without times, so a resumed run writes the same.

    Args:
        folder: The run's folder.
        step: Step that the run resumes at; later lines are removed.
        trackers: Services that get a copy of each line.

    Example:
        >>> import tempfile, pathlib
        >>> from hypersphere.train import Log, read_metrics
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     log = Log(pathlib.Path(folder))
        ...     log.write(1, {"loss": 0.5})
        ...     log.close()
        ...     read_metrics(log.path)
        [{'step': 1, 'loss': 0.5}]
    """

    def __init__(self, folder: Path, step: int = 0, trackers: Trackers | None = None) -> None:
        self.path = folder / "metrics.jsonl"
        kept = [line for line in read_metrics(self.path) if line["step"] <= step]
        write_atomically(self.path, "".join(json.dumps(line) + "\n" for line in kept).encode())
        self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115
        self._board = _tensorboard(folder, step)
        self._trackers = trackers

    def write(self, step: int, values: dict[str, float]) -> None:
        """Append a line. Raises a UserError if the file cannot be written."""
        try:
            self._file.write(json.dumps({"step": step} | values | {"step": step}) + "\n")
            self._file.flush()
            if self._board is not None:
                for name, value in values.items():
                    self._board.add_scalar(name, value, step)
        except OSError as error:
            self._board = None
            raise UserError(f"could not write the log in {self.path.parent}: {error.strerror}") from None
        if self._trackers is not None:
            self._trackers.write(step, values)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # `write` has reported it
            self._file.close()
            if self._board is not None:
                self._board.close()
        if self._trackers is not None:
            self._trackers.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read a metrics file, without lines that are incomplete or damaged.

    Args:
        path: The file metrics.jsonl of a run.

    Returns:
        One dict per line, each with "step"; empty if there is no file.

    Example:
        >>> import pathlib
        >>> from hypersphere.train import read_metrics
        >>> read_metrics(pathlib.Path("missing.jsonl"))
        []
    """
    lines = []
    if path.is_file():
        for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                line = json.loads(text)
                check_record(line, dict[str, float | None])
                if type(line.get("step")) is int:
                    lines.append(line)
    return lines


def _tensorboard(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
