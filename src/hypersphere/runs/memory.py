"""Memory of a run: what its options need is compared with what is free before anything is allocated."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import nn

from hypersphere.config import Config
from hypersphere.errors import UserError, first_line
from hypersphere.nn.in_memory import is_in_memory
from hypersphere.runs.build import build_method
from hypersphere.util.free_memory import free_memory, in_bytes
from hypersphere.util.references import is_reference

SLOTS = {"lars": 1, "sgd": 1, "adamw": 2, "muon": 1}  # copies of the weights that an optimizer keeps
TRIED = (8, 16)  # images of the two updates whose memory tells how much an image takes
SAFE = 0.9  # share of free memory that a run may plan with, since it is in pieces


class NetworkMemory(NamedTuple):
    """Bytes of the networks of a run in training: weights, buffers, gradients and the optimizer's state."""

    total: int
    largest: str  # the network that takes most of it


def network_memory(config: Config, channels: int, classes: int) -> NetworkMemory | None:
    """Memory of a run's networks, found without allocating them. None if the encoder is the user's own code.

    Raises:
        UserError: If the sizes are too large for any machine.
    """
    if is_reference(config.encoder) or is_in_memory(config.encoder) or is_reference(config.method):
        return None
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"), warnings.catch_warnings(action="ignore"):
            method = build_method(config, channels, classes)
    except UserError:
        raise
    except (RuntimeError, OverflowError, TypeError) as error:
        if any(word in str(error).lower() for word in ("overflow", "invalid size", "too large", "int64", "long")):
            raise UserError(f"these options need more memory than any machine has ({first_line(error)})") from None
        return None  # an encoder that cannot be built this way
    copies = 2 + SLOTS[config.optimizer]  # weights, gradients, state
    sizes = {name: size_of(part, copies) for name, part in method.named_children()}
    return NetworkMemory(size_of(method, copies), max(sizes, key=sizes.__getitem__))


def size_of(part: nn.Module, copies: int) -> int:
    """Bytes of networks, with so many copies of each weight that learns."""
    weights = sum(w.nbytes * (copies if w.requires_grad else 1) for w in part.parameters())
    return weights + sum(buffer.nbytes for buffer in part.buffers())


def check_memory(config: Config, channels: int, classes: int, device: torch.device) -> None:
    """Check that the networks of a run fit into the memory that is free.

    Raises:
        UserError: If they do not.
    """
    needed, free = network_memory(config, channels, classes), free_memory(device)
    if needed is not None and free is not None and needed.total > free:
        where = "the GPU" if device.type == "cuda" else "this machine"
        need = (
            f"these options need {in_bytes(needed.total)} of memory for the networks, most of it for {needed.largest}"
        )
        raise UserError(f"{need}; {in_bytes(free)} are free on {where}: choose smaller ones")


@contextlib.contextmanager
def memory_errors_as_user_errors(
    batch: int, device: torch.device, trial: Callable[[int], Callable[[], None]]
) -> Iterator[None]:
    """Turn an allocation that fails into one line, with the number of images that would fit.

    Args:
        batch: Images computed at once.
        device: Device of the run.
        trial: Makes a function that makes an update of so many images on a copy of the networks.
    """
    try:
        yield
        return
    except torch.OutOfMemoryError:
        pass
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):
            raise
        raise UserError(f"memory does not suffice for this run ({first_line(error)})") from None
    # outside of the handlers, so that nothing of the failed update is alive any more
    raise UserError(f"GPU memory does not suffice for {batch} images at once: {_advice(batch, device, trial)}")


def _advice(batch: int, device: torch.device, trial: Callable[[int], Callable[[], None]]) -> str:
    try:
        few, more = (_taken_by(trial(count), device) for count in TRIED)
        each = max(1.0, (more - few) / (TRIED[1] - TRIED[0]))
        torch.cuda.empty_cache()
        room = SAFE * torch.cuda.mem_get_info(device)[0] - (few - TRIED[0] * each)
        fitting = min(int(room / each), batch // 2)
    except Exception:  # a device that has just failed may fail in any way
        fitting = 0
    if fitting < 2:
        return "choose a smaller `encoder`"
    size = 2 ** (fitting.bit_length() - 1)
    return f"about {size} would fit (`batch` {size}, or `micro_batch` {size}, which adds gradients up)"


def _taken_by(update: Callable[[], None], device: torch.device) -> int:
    """Most bytes that a first update takes beyond the networks."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    update()
    return torch.cuda.max_memory_allocated(device) - before
