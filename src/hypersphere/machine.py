"""Where a run happens: device, precision, versions."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from hypersphere.config import Precision
from hypersphere.errors import UserError


def pick_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"--device {name} cannot be used here ({str(error).splitlines()[0]})") from None
    return device


def pick_precision(name: Precision, device: torch.device) -> Precision:
    if name != "auto":
        return name
    fast = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if fast else "float32"


def provenance(device: torch.device) -> dict[str, str]:
    """Which code, on what."""
    try:
        ours = version("hypersphere")
    except PackageNotFoundError:
        ours = "unknown"
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    python = platform.python_version()
    return {"version": ours, "commit": _commit(), "python": python, "torch": torch.__version__, "device": name}


def _commit() -> str:
    """Of the checkout this code runs from; or $HYPERSPHERE_COMMIT, where there is none."""
    here = Path(__file__).resolve().parents[2]
    if (here / ".git").exists():
        command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        if found.returncode == 0:
            return found.stdout.strip()
    return os.environ.get("HYPERSPHERE_COMMIT", "unknown")
