"""What a run writes down as it goes: metrics.jsonl, and TensorBoard's files where that is installed."""

import contextlib
import json
from pathlib import Path
from typing import Any

from hypersphere.errors import UserError
from hypersphere.util.files import write_atomically


class Log:
    """Lines of {"step": …, name: value …}, without clock times: a resumed run writes what an unbroken one does."""

    def __init__(self, folder: Path, step: int = 0) -> None:
        self.path = folder / "metrics.jsonl"
        kept = [line for line in read_metrics(self.path) if line["step"] <= step]
        write_atomically(self.path, "".join(json.dumps(line) + "\n" for line in kept).encode())
        self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115
        self._board = _tensorboard(folder, step)

    def write(self, step: int, values: dict[str, float]) -> None:
        try:
            self._file.write(json.dumps({"step": step} | values | {"step": step}) + "\n")
            self._file.flush()
            if self._board is not None:
                for name, value in values.items():
                    self._board.add_scalar(name, value, step)
        except OSError as error:
            self._board = None
            raise UserError(f"could not write the log in {self.path.parent}: {error.strerror}") from None

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what could not be written has been told
            self._file.close()
            if self._board is not None:
                self._board.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a metrics file; one cut off by a kill, or damaged otherwise, is left out."""
    lines = []
    if path.is_file():
        for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                line = json.loads(text)
                if isinstance(line, dict) and type(line.get("step")) is int:
                    lines.append(line)
    return lines


def _tensorboard(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
