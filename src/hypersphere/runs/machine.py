"""The machine of a run: device, precision, kernels, and provenance of results."""

import contextlib
import os
import platform
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from hypersphere import __version__
from hypersphere.config import Config
from hypersphere.errors import UserError, first_line
from hypersphere.kernels import HAS_TRITON, without_kernels
from hypersphere.train.options import Precision, Switch
from hypersphere.util.launcher import launched, local_rank_and_size


def pick_device(name: str | torch.device) -> torch.device:
    """The device of this name, if it can be used. "auto" is a GPU if there is one, else the CPU.

    If several processes of a job run on this machine, each gets a GPU of its own.

    Raises:
        UserError: If the device does not exist, or there are fewer GPUs than processes.
    """
    name = ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else str(name)
    rank, processes = local_rank_and_size()
    if processes > 1 and name.startswith("cuda"):
        gpus = torch.cuda.device_count()
        if name not in ("cuda", f"cuda:{rank}") or gpus < processes:
            raise UserError(f"{processes} processes on this machine need a GPU each: got `device` {name} of {gpus}")
        name = f"cuda:{rank}"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        reason = f" ({first_line(error).split('. ')[0]})" if name.startswith("cuda") else ""
        usable = ["auto", "cpu", *(f"cuda:{n}" for n in range(torch.cuda.device_count()))]
        usable += ["mps"] * torch.backends.mps.is_available()
        raise UserError(f"`device` {name} cannot be used here{reason}: choose one of {', '.join(usable)}") from None
    return device


def pick_precision(name: Precision, device: torch.device) -> Precision:
    """The precision of this name. "auto" is bfloat16 on a GPU that supports it, else float32."""
    if name != "auto":
        return name
    fast = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if fast else "float32"


@dataclass(frozen=True)
class Execution:
    """How a run computes: the options that its config leaves to the machine. They do not change its hash."""

    device: torch.device
    precision: torch.dtype
    layout: torch.memory_format
    kernels: bool
    graph: bool
    compile: bool

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Make the device the current one, turn kernels on or off, and let cuDNN search for fast algorithms."""
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = self.device.type == "cuda"
        try:
            here = torch.cuda.device(self.device) if self.device.type == "cuda" else contextlib.nullcontext()
            with here, contextlib.nullcontext() if self.kernels else without_kernels():
                yield
        finally:
            torch.backends.cudnn.benchmark = before


def training_execution(config: Config) -> Execution:
    """How a run with this config trains on this machine.

    Raises:
        UserError: If an option is "on" that this machine does not support.
    """
    device = pick_device(config.device)
    precision = pick_precision(config.precision, device)
    on_gpu, alone = device.type == "cuda", launched() == 1
    channels_last = config.layout == "channels_last" or (config.layout == "auto" and on_gpu)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return Execution(
        device=device,
        precision=getattr(torch, precision),
        layout=layout,
        kernels=_switch("kernels", config.kernels, on_gpu and HAS_TRITON, "a CUDA GPU and the package triton"),
        graph=_switch(
            "graph",
            config.graph,
            on_gpu and precision != "float16" and alone,
            "one process with a CUDA GPU, not float16",
        ),
        compile=_switch("compile", "off" if config.compile == "auto" else config.compile, alone, "a single process"),
    )


def evaluation_execution(config: Config, device: torch.device) -> Execution:
    """How to evaluate the encoder of a run on a device, which need not be the one it was trained on."""
    precision = config.precision if device.type == "cuda" else "float32"
    kernels = "off" if config.kernels == "off" else "auto"
    return training_execution(config.replace(device=str(device), precision=precision, kernels=kernels, graph="off"))


def _switch(name: str, wanted: Switch, possible: bool, needs: str) -> bool:
    if wanted == "on" and not possible:
        raise UserError(f"`{name}` on requires {needs}")
    return possible and wanted != "off"


def provenance(device: torch.device) -> dict[str, str]:
    """Version and commit of the code, versions of Python and torch, and the device.

    `shared` is added if other runs use the device at the same time ($HYPERSPHERE_SHARED), so that times mean little.
    """
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    code = {"version": __version__, "commit": _commit(), "python": platform.python_version()}
    shared = {"shared": value} if (value := os.environ.get("HYPERSPHERE_SHARED")) else {}
    return {**code, "torch": torch.__version__, "device": name, **shared}


def _commit() -> str:
    """$HYPERSPHERE_COMMIT, for code that is copied without its history; else the commit of this checkout."""
    commit, here = os.environ.get("HYPERSPHERE_COMMIT"), Path(__file__).resolve().parents[3]
    if commit is None and (here / ".git").exists():
        with contextlib.suppress(OSError, subprocess.CalledProcessError):  # no git, or no commit
            changed = _git(here, "status", "--porcelain", "--", "src", "pyproject.toml")  # results are no code
            commit = _git(here, "rev-parse", "--short=12", "HEAD") + ("-dirty" if changed else "")
    return commit or "unknown"


def _git(folder: Path, *words: str) -> str:
    found = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return found.stdout.strip()
