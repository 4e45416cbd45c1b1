"""The state of a run, and one update of it."""

import contextlib
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from hypersphere.distributed.collectives import all_mean, rank, world_size
from hypersphere.errors import UserError, first_line
from hypersphere.methods import Batch, Method, Step
from hypersphere.nn import separate_view_statistics
from hypersphere.train.half_precision import HalfPrecisionLoss

# buffers are equal on all processes, so they are not broadcast; torch has had two names for that option
_NAMES = inspect.signature(DistributedDataParallel).parameters
_BUFFERS_SENT = "forward_sync_buffers" if "forward_sync_buffers" in _NAMES else "broadcast_buffers"


class Trainer:
    """The state of a run: the method, its optimizer and the step.

    Args:
        method: The method, on the device.
        optimizer: Its optimizer.
        regularizer: Returns a term that is added once per update, or None.
        device: Where the networks are.
        precision: float32, or the dtype of autocast.
        capture: Whether the loop records updates as a CUDA graph.
        compile: Whether to compile the method with torch.compile.

    Example:
        >>> from hypersphere.train import Trainer
        >>> encoder = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 8))
        >>> method = hs.methods.BYOL(encoder, features=8, hidden=16, projection=4)
        >>> optimizer = hs.optim.LARS(method.parameter_groups(), lr=0.1)
        >>> trainer = Trainer(method, optimizer, None, torch.device("cpu"), torch.float32)
        >>> views = torch.randn(4, 1, 8, 8), torch.randn(4, 1, 8, 8)
        >>> terms = trainer.update([hs.methods.Batch(views, torch.arange(4), None)], lr=0.1, progress=0.0)
        >>> sorted(terms)
        ['byol', 'loss']
    """

    def __init__(
        self,
        method: Method,
        optimizer: torch.optim.Optimizer,
        regularizer: Callable[[], Tensor] | None,
        device: torch.device,
        precision: torch.dtype,
        *,
        capture: bool = False,
        compile: bool = False,
    ) -> None:
        self.method, self.optimizer, self.regularizer = method, optimizer, regularizer
        self.device, self.step, self.seed = device, 0, torch.initial_seed()
        self.capture, self.compiled = capture, compile
        narrow = device.type == "cuda" and precision != torch.float32
        self.loss_of: Callable[[Batch], Step] = HalfPrecisionLoss(method, precision) if narrow else method
        if compile:
            self.loss_of = torch.compile(method, dynamic=False)
        self.precision = precision
        self.autocast = torch.autocast(device.type, dtype=precision, enabled=precision != torch.float32)
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == torch.float16)

    def join(self) -> None:
        """Join the other processes, each with its share of every micro-batch.

        Autocast then converts weights one by one, so that gradients are sent while others are computed.
        """
        if world_size() > 1:
            if not separate_view_statistics(self.method):
                raise UserError(
                    "`encoder` has a normalization that cannot be synchronized over processes: use nn.BatchNorm2d"
                )
            how: dict[str, Any] = {_BUFFERS_SENT: False, "find_unused_parameters": _has_foreign_modules(self.method)}
            warnings.filterwarnings("ignore", message="find_unused_parameters=True")  # the warning that there are none
            self.loss_of = DistributedDataParallel(self.method, **how)

    @property
    def input_type(self) -> torch.dtype:
        """Data type of the views: on a GPU that of the networks, to avoid a copy."""
        return self.precision if self.device.type == "cuda" else torch.float32

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {
            "step": self.step,
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore everything except the method's own state. Raises a ValueError if the state does not fit."""
        try:
            self._restore(state)
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"the state of the optimizer does not fit: {first_line(error)}") from None

    def _restore(self, state: dict[str, Any]) -> None:
        numbered = [group["params"] for group in self.optimizer.state_dict()["param_groups"]]
        if [group["params"] for group in state["optimizer"]["param_groups"]] != numbered:
            raise ValueError("it has other parameters")
        for saved, own in zip(state["optimizer"]["param_groups"], self.optimizer.param_groups, strict=True):
            saved |= {
                name: own[name] for name in ("capturable", "foreach", "fused") if name in own
            }  # as on this device
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(state["scaler"])
        torch.set_rng_state(state["random"])
        if self.device.type == "cuda" and state["random_cuda"] is not None:
            torch.cuda.set_rng_state(state["random_cuda"], self.device)
        self.step = state["step"]

    def update(self, batches: Sequence[Batch], lr: float | Tensor, progress: float | Tensor) -> dict[str, Tensor]:
        """Update the weights by the mean loss of equal micro-batches, plus the regularizer once.

        Args:
            batches: The micro-batches.
            lr: Learning rate.
            progress: Share of the run that is done, from 0 to 1.

        Returns:
            The loss and its terms, as scalar tensors.
        """
        self.optimizer.zero_grad(set_to_none=True)  # a failed attempt may have left gradients
        if world_size() > 1:  # different dropout on each process, reproducible after a resume
            torch.manual_seed(hash((self.seed, self.step, rank())))
        progress = torch.as_tensor(progress, device=self.device)
        for group in self.optimizer.param_groups:
            group.update(lr=group.get("rate", lr), progress=progress)
        self.method.before_step(progress)
        terms: dict[str, Tensor] = {}
        for number, batch in enumerate(batches, 1):
            with self._without_gradient_sync() if number < len(batches) else contextlib.nullcontext():
                with self.autocast:
                    loss, parts = _checked(self.loss_of(batch), self.method)
                self.scaler.scale(loss / len(batches)).backward()
            for name, value in {**parts, "loss": loss.detach()}.items():
                terms[name] = terms.get(name, 0) + value / len(batches)
        if world_size() > 1:
            terms = dict(zip(terms, all_mean(torch.stack(list(terms.values()))), strict=True))
        if self.regularizer is not None:  # equal on all processes
            energy = self.regularizer()
            if energy.requires_grad:
                self.scaler.scale(energy).backward()
            terms["regularizer"] = energy.detach()
            terms["loss"] = terms["loss"] + terms["regularizer"]
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.method.after_step(progress)
        return terms

    def _without_gradient_sync(self) -> contextlib.AbstractContextManager[None]:
        """Do not exchange gradients with other processes inside."""
        together = isinstance(self.loss_of, DistributedDataParallel)
        return self.loss_of.no_sync() if together else contextlib.nullcontext()  # type: ignore[attr-defined]


def _has_foreign_modules(method: Method) -> bool:
    """Whether the method has modules of other libraries, some of whose weights the loss may not use."""
    return any(type(part).__module__.partition(".")[0] not in ("hypersphere", "torch") for part in method.modules())


def _checked(step: Any, method: Method) -> Step:
    """Check what a method's forward returned."""
    name = type(method).__name__
    complete = isinstance(step, tuple) and len(step) == 2 and isinstance(step[1], dict)
    if not complete or not isinstance(step[0], Tensor) or step[0].ndim:
        raise UserError(f"forward of {name} must return Step(loss, terms), with the loss a tensor of one number")
    if not step[0].requires_grad:
        raise UserError(f"forward of {name} returned a loss that does not depend on any weight")
    if wrong := [term for term, value in step[1].items() if not isinstance(value, Tensor) or value.ndim]:
        raise UserError(f"forward of {name}: its term {wrong[0]} must be a tensor of one number")
    return Step(*step)
