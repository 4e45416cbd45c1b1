"""Where a run happens: device, precision, versions."""

import contextlib
import os
import platform
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from hypersphere import __version__
from hypersphere.config import Config, Precision, Switch
from hypersphere.errors import UserError, first_line
from hypersphere.kernels import HAS_TRITON, references_alone
from hypersphere.util.launch import launched, place_on_machine


def pick_device(name: str | torch.device) -> torch.device:
    """Of several processes on a machine each has a GPU of its own."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    number, processes = place_on_machine()
    if processes > 1 and str(name).startswith("cuda"):
        gpus = torch.cuda.device_count()
        if str(name) not in ("cuda", f"cuda:{number}") or gpus < processes:
            raise UserError(f"{processes} processes on this machine need a GPU each, not `device` {name} of {gpus}")
        name = f"cuda:{number}"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        reason = f" ({first_line(error).split('. ')[0]})" if str(name).startswith("cuda") else ""
        there = ["auto", "cpu", *(f"cuda:{n}" for n in range(torch.cuda.device_count()))]
        there += ["mps"] * torch.backends.mps.is_available()
        raise UserError(f"`device` {name} cannot be used here{reason}: choose one of {', '.join(there)}") from None
    return device


def pick_precision(name: Precision, device: torch.device) -> Precision:
    if name != "auto":
        return name
    fast = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if fast else "float32"


@dataclass(frozen=True)
class Execution:
    """How a run computes: what its config leaves to the machine, decided. None of it changes what is computed."""

    device: torch.device
    precision: torch.dtype
    layout: torch.memory_format
    kernels: bool
    graph: bool
    compile: bool

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, the device is the current one, kernels are on or off, cuDNN chooses its algorithms by trying them."""
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = self.device.type == "cuda"
        try:
            here = torch.cuda.device(self.device) if self.device.type == "cuda" else contextlib.nullcontext()
            with here, contextlib.nullcontext() if self.kernels else references_alone():
                yield
        finally:
            torch.backends.cudnn.benchmark = before


def execution_of(config: Config) -> Execution:
    device = pick_device(config.device)
    precision = pick_precision(config.precision, device)
    on_gpu, alone = device.type == "cuda", launched() == 1
    return Execution(
        device=device,
        precision=getattr(torch, precision),
        layout=_layout(config.layout, on_gpu),
        kernels=_switch("kernels", config.kernels, on_gpu and HAS_TRITON, "a CUDA GPU and the package triton"),
        graph=_switch(
            "graph",
            config.graph,
            on_gpu and precision != "float16" and alone,
            "one process with a CUDA GPU, not float16",
        ),
        compile=_switch("compile", "off" if config.compile == "auto" else config.compile, alone, "a single process"),
    )


def evaluation_of(config: Config, device: torch.device) -> Execution:
    """How a run's encoder is measured on this device, which need not be the one it was trained on."""
    precision = config.precision if device.type == "cuda" else "float32"
    kernels = "off" if config.kernels == "off" else "auto"
    return execution_of(config.replace(device=str(device), precision=precision, kernels=kernels, graph="off"))


def _switch(name: str, wanted: Switch, possible: bool, needs: str) -> bool:
    if wanted == "on" and not possible:
        raise UserError(f"`{name}` on needs {needs}")
    return possible and wanted != "off"


def _layout(wanted: str, on_gpu: bool) -> torch.memory_format:
    if wanted == "auto":
        wanted = "channels_last" if on_gpu else "contiguous"
    return torch.channels_last if wanted == "channels_last" else torch.contiguous_format


def provenance(device: torch.device) -> dict[str, str]:
    """Which code, on what; `shared`, where other runs share the device ($HYPERSPHERE_SHARED): seconds say little."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    code = {"version": __version__, "commit": _commit(), "python": platform.python_version()}
    shared = {"shared": told} if (told := os.environ.get("HYPERSPHERE_SHARED")) else {}
    return {**code, "torch": torch.__version__, "device": name, **shared}


def _commit() -> str:
    """$HYPERSPHERE_COMMIT, where code is copied without its history; else of the checkout this code runs from."""
    told, here = os.environ.get("HYPERSPHERE_COMMIT"), Path(__file__).resolve().parents[3]
    if told is None and (here / ".git").exists():
        with contextlib.suppress(OSError, subprocess.CalledProcessError):  # there is no git, or no commit
            commit = _git(here, "rev-parse", "--short=12", "HEAD")
            changed = _git(here, "status", "--porcelain", "--", "src", "pyproject.toml")  # results are no code
            told = commit + ("-dirty" if changed else "")
    return told or "unknown"


def _git(folder: Path, *words: str) -> str:
    found = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return found.stdout.strip()
