"""Checkpoints: written atomically with the one before kept, and read without running code in them.

torch writes a zip file with a CRC-32 of every tensor, but does not compare it when loading. We do.
"""

import contextlib
import io
import pickle
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from hypersphere.errors import UserError, first_line
from hypersphere.util.console import notify
from hypersphere.util.files import write_atomically
from hypersphere.util.records import check_record
from hypersphere.util.run_files import CHECKPOINT, PREVIOUS


class _State(TypedDict):
    """What is read of a checkpoint."""

    hash: str
    step: int
    seconds: float
    method: dict[str, Tensor]
    optimizer: dict[str, Any]


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint atomically. The one that it replaces stays beside it as checkpoint.previous.pt.

    `remove_previous` removes that when the run has finished.

    Args:
        path: The file.
        state: Tensors, numbers, strings, and dicts and lists of these.

    Raises:
        UserError: If the file cannot be written.

    Example:
        >>> import tempfile, pathlib
        >>> from hypersphere.train import load_checkpoint, save_checkpoint
        >>> state = {"hash": "a1", "step": 3, "seconds": 0.5, "method": {}, "optimizer": {}}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_checkpoint(pathlib.Path(folder) / "checkpoint.pt", state)
        ...     load_checkpoint(pathlib.Path(folder) / "checkpoint.pt")["step"]
        3
    """
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomically(path, buffer.getbuffer(), keep=path.with_name(PREVIOUS))


def remove_previous(path: Path, step: int) -> None:
    """Remove the checkpoint before the last one of a finished run, after reading the last one back.

    Args:
        path: The last checkpoint.
        step: Its step. If it is damaged, or of another step, the one before stays.
    """
    previous = path.with_name(PREVIOUS)
    with contextlib.suppress(UserError, OSError):
        if previous.exists() and load_checkpoint(path)["step"] == step:
            previous.unlink()


def has_checkpoint(folder: Path) -> bool:
    """Whether a run in `folder` has saved a checkpoint."""
    return any((folder / name).exists() for name in (CHECKPOINT, PREVIOUS))


def latest_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The checkpoint from which a run continues: the last one, or the one before if that is damaged.

    Args:
        folder: Folder of the run.

    Returns:
        The state of the run, or None if it has not saved any.

    Raises:
        UserError: If there is no checkpoint that is not damaged.
    """
    if not has_checkpoint(folder):
        return None
    try:
        return load_checkpoint(folder / CHECKPOINT)
    except UserError:
        if not (folder / PREVIOUS).exists():
            raise
        state = load_checkpoint(folder / PREVIOUS)
        notify(f"{folder / CHECKPOINT} is damaged or missing: using the checkpoint before it, of step {state['step']}")
        return state


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint to the CPU, without running code in it.

    Args:
        path: The file.

    Returns:
        The state of the run, as passed to `save_checkpoint`.

    Raises:
        UserError: If there is no such file, or it is damaged or not a checkpoint of a run.

    Example:
        >>> import pathlib
        >>> from hypersphere.train import load_checkpoint
        >>> load_checkpoint(pathlib.Path("missing.pt"))
        Traceback (most recent call last):
        ...
        hypersphere.errors.UserError: missing.pt: there is no checkpoint yet (see `save_every`)
    """
    if not path.is_file():
        raise UserError(f"{path}: there is no checkpoint yet (see `save_every`)")
    try:
        _check_sums(path)
        with warnings.catch_warnings(action="ignore"):  # about odd pickles, which are rejected anyway
            state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise UserError(
            f"{path} is damaged, or holds more than a run saves, which could run code when loaded: it is not read"
        ) from None
    except Exception as error:
        before = path.with_name(PREVIOUS).exists() and path.name != PREVIOUS
        advice = "continues from the checkpoint before" if before else "starts again if you remove it"
        raise UserError(f"{path} is damaged ({first_line(error)}): `resume` {advice}") from None
    try:
        check_record(state, _State)
    except ValueError as error:
        raise UserError(f"{path} is not a checkpoint of a run ({error})") from None
    return state


def _check_sums(path: Path) -> None:
    """Compare the checksum of every tensor in a checkpoint. Raises an exception if it is damaged."""
    with zipfile.ZipFile(path) as archive:
        if damaged := archive.testzip():
            raise zlib.error(f"the checksum of {damaged} differs")


def restore(module: nn.Module, state: dict[str, Any], path: Path) -> None:
    """Load the state of a module, and name the first tensor that does not fit.

    Args:
        module: The module. Buffers named in its `growing` may change their shape.
        state: Its state_dict.
        path: The checkpoint, for error messages.

    Raises:
        UserError: If a tensor is missing or has another shape.

    Example:
        >>> import pathlib
        >>> from hypersphere.train import restore
        >>> restore(torch.nn.Linear(3, 2), torch.nn.Linear(3, 2).state_dict(), pathlib.Path("checkpoint.pt"))
    """
    ours, grown = module.state_dict(), getattr(module, "growing", ())
    for name in [*ours, *state]:
        if name not in state or name not in ours:
            where = "checkpoint" if name not in state else "model"
            raise UserError(f"{path} is of another architecture: the {where} has no {name}")
        if ours[name].shape != state[name].shape and name not in grown:
            shapes = f"shape {tuple(state[name].shape)}, but {tuple(ours[name].shape)} in this model"
            raise UserError(f"{path} is of another architecture: {name} has {shapes}")
    module.load_state_dict(state)
