"""Checkpoints: written atomically, and read without running code in them."""

import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hypersphere.errors import UserError, first_line
from hypersphere.util.files import write_atomically


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint atomically.

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
    write_atomically(path, buffer.getbuffer())


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
        with warnings.catch_warnings(action="ignore"):  # about odd pickles, which are rejected anyway
            state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise UserError(
            f"{path} is damaged, or holds more than a run saves, which could run code when loaded: it is not read"
        ) from None
    except Exception as error:
        problem = f"{path} is damaged or not a checkpoint ({first_line(error)})"
        raise UserError(f"{problem}: remove it, and `resume` starts again") from None
    if not isinstance(state, dict) or not {"hash", "step", "seconds", "method", "optimizer"} <= state.keys():
        raise UserError(f"{path} is not a checkpoint of a run")
    return state


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
