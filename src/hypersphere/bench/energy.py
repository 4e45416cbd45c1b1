"""Time and memory of the energy of many neurons with its gradient, beside the obvious formula."""

import multiprocessing
import threading
from collections.abc import Callable

import torch
from torch import Tensor

from hypersphere.bench.timing import Figures, matmul_rate, milliseconds, now, resident_mib
from hypersphere.sphere import hyperspherical_energy


def obvious(w: Tensor) -> Tensor:
    """Mean of arccos(ŵŵᵀ)⁻² over i ≠ j, written with dense matrices."""
    unit = w / w.norm(dim=1, keepdim=True)
    cosine = (unit @ unit.T).clamp(-1 + 1e-6, 1 - 1e-6)
    n = len(w)
    return (torch.acos(cosine).pow(-2) * (1 - torch.eye(n, device=w.device))).sum() / (n * (n - 1))


def tiled(w: Tensor) -> Tensor:
    """The same energy by our implementation."""
    return hyperspherical_energy(w, s=2, metric="geodesic")


def on_gpu(device: torch.device, rows: int = 131_072, dimensions: int = 1024) -> Figures:
    """Figures of one large layer on a GPU.

    In 16-bit products of rows² · dimensions, the cosines of half of the pairs take three (numbers are split in two),
    and the gradients of both points of each pair take two.
    """
    w = torch.randn(rows, dimensions, device=device, requires_grad=True)
    (gradient,) = torch.autograd.grad(tiled(w), w)
    del gradient
    torch.cuda.reset_peak_memory_stats(device)
    before, began = torch.cuda.memory_allocated(device), now(device)
    (gradient,) = torch.autograd.grad(tiled(w), w)
    seconds = now(device) - began
    beyond = torch.cuda.max_memory_allocated(device) - before - gradient.nbytes
    flops = (3 + 2) * rows**2 * dimensions
    share = flops / seconds / 1e12 / matmul_rate(device, torch.float16)
    return {
        "rows": rows,
        "seconds": seconds,
        "gib_beyond": beyond / 2**30,
        "tflops": flops / seconds / 1e12,
        "share_of_matmul": share,
    }


def of_transformer(device: torch.device, blocks: int = 32, width: int = 4096) -> Figures:
    """Figures of the energies, without gradients, of all matrices of a transformer in bfloat16; by default of 8B."""
    hidden, shared = 7 * width // 2, width // 4  # of the feed-forward network; of keys and values
    shapes = [(width, width)] * 2 + [(shared, width)] * 2 + [(hidden, width)] * 2 + [(width, hidden)]
    weights = [torch.randn(shape, device=device, dtype=torch.bfloat16) for shape in shapes * blocks]

    @torch.no_grad()
    def all_energies() -> None:
        for w in weights:
            tiled(w)

    all_energies()
    torch.cuda.reset_peak_memory_stats(device)
    before, began = torch.cuda.memory_allocated(device), now(device)
    all_energies()
    seconds = now(device) - began
    beyond = torch.cuda.max_memory_allocated(device) - before
    return {"matrices": len(weights), "seconds": seconds, "gib_beyond": beyond / 2**30}


def on_cpu(rows: int = 4096, dimensions: int = 512) -> Figures:
    """Figures of the tiled energy and of the obvious formula on a CPU, each in its own process."""
    found: Figures = {}
    for name in ("obvious", "tiled"):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            seconds, mib = pool.apply(_measured, (name, rows, dimensions))
        found |= {f"{name}_ms": 1e3 * seconds, f"{name}_mib": mib}
    ratios = {"speed": found["obvious_ms"] / found["tiled_ms"], "memory": found["tiled_mib"] / found["obvious_mib"]}
    return {"rows": rows, "dimensions": dimensions, **found, **ratios}


def _measured(name: str, rows: int, dimensions: int) -> tuple[float, float]:
    """Median seconds of a gradient, and the memory that it takes in MiB."""
    torch.manual_seed(0)
    function = {"obvious": obvious, "tiled": tiled}[name]
    small = torch.randn(64, dimensions, requires_grad=True)
    torch.autograd.grad(function(small), small)
    w = torch.randn(rows, dimensions, requires_grad=True)
    mib = _mib_beyond(lambda: torch.autograd.grad(function(w), w))
    return milliseconds(lambda: torch.autograd.grad(function(w), w), w.device, repeats=5) / 1e3, mib


def _mib_beyond(function: Callable[[], object]) -> float:
    """Memory in MiB that the process takes in addition while a function runs, sampled every millisecond."""
    before, seen, done = resident_mib(), [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.001):
            seen.append(resident_mib() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    function()
    done.set()
    watcher.join()
    return max(seen)
