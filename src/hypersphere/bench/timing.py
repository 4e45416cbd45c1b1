"""Duration of functions, memory of processes, and the machine's speed of matrix products."""

import itertools
import resource
import statistics
import time
from collections.abc import Callable

import torch

Function = Callable[[], object]
Figures = dict[str, float]  # measurements by name


def milliseconds(function: Function, device: torch.device, repeats: int = 20) -> float:
    """Median duration of a function.

    On a GPU, replays of a CUDA graph are timed, so that the overhead of Python is not measured.

    Args:
        function: The function.
        device: Device on which it computes.
        repeats: Number of calls.
    """
    if device.type != "cuda":
        function()
        return 1e3 * statistics.median(seconds(function, device) for _ in range(repeats))
    replay = recorded(function, device)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    replay()
    for mark in marks[:-1]:
        mark.record()
        replay()
    marks[-1].record()
    torch.cuda.synchronize(device)
    return statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(marks))


def seconds(function: Function, device: torch.device, repeats: int = 1) -> float:
    """Duration of all calls together, including the work that they start on a GPU."""
    began = now(device)
    for _ in range(repeats):
        function()
    return now(device) - began


def now(device: torch.device) -> float:
    """Time in seconds, when the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def recorded(function: Function, device: torch.device) -> Function:
    """A function as a CUDA graph, or as it is if it cannot be captured."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=stream):
            function()
    except RuntimeError:
        return function
    return graph.replay


def matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Speed of a large square matrix product of random numbers, in TFLOP/s."""
    side = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return 2 * side**3 / milliseconds(lambda: a @ b, device) / 1e9


def resident_mib(process: int | None = None) -> float:
    """Resident memory of a process in MiB; without Linux's /proc, the maximum of this process."""
    try:
        with open(f"/proc/{process or 'self'}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize() / 2**20
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
