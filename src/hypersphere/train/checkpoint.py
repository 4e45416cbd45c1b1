"""Checkpoints: written whole or not at all, read without running any code in them."""

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
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomically(path, buffer.getbuffer())


def load_checkpoint(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"{path}: there is no checkpoint yet (see `save_every`)")
    try:
        with warnings.catch_warnings(action="ignore"):  # of odd pickles, which are refused anyway
            state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise UserError(
            f"{path} is damaged, or holds more than a run saves, and is not unpickled: it could run code"
        ) from None
    except Exception as error:
        told = f"{path} is damaged or no checkpoint ({first_line(error)})"
        raise UserError(f"{told}: without it, `resume` begins anew") from None
    if not isinstance(state, dict) or not {"hash", "step", "seconds", "method", "optimizer"} <= state.keys():
        raise UserError(f"{path} is not a checkpoint of a run")
    return state


def restore(module: nn.Module, state: dict[str, Any], path: Path) -> None:
    """Load a module's state, or say where it does not fit."""
    ours, grown = module.state_dict(), getattr(module, "growing", ())
    for name in [*ours, *state]:
        if name not in state or name not in ours:
            where = "checkpoint" if name not in state else "model"
            raise UserError(f"{path} is of another architecture: the {where} has no {name}")
        if ours[name].shape != state[name].shape and name not in grown:
            shapes = f"{tuple(state[name].shape)} there, {tuple(ours[name].shape)} here"
            raise UserError(f"{path} is of another architecture: {name} is {shapes}")
    module.load_state_dict(state)
