"""Milliseconds of a function, memory of a process, and this machine's rate of matrix products."""

import itertools
import resource
import statistics
import time
from collections.abc import Callable

import torch

Function = Callable[[], object]


def milliseconds(function: Function, device: torch.device, repeats: int = 20) -> float:
    """The median; on a GPU of replays of one recording, so that Python's launching is not what is measured."""
    if device.type != "cuda":
        return _on_cpu(function, repeats)
    replay = recorded(function, device)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    replay()
    for mark in marks[:-1]:
        mark.record()
        replay()
    marks[-1].record()
    torch.cuda.synchronize(device)
    return statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(marks))


def _on_cpu(function: Function, repeats: int) -> float:
    function()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return 1e3 * statistics.median(times)


def recorded(function: Function, device: torch.device) -> Function:
    """As a CUDA graph; or, where it cannot be recorded, as it is."""
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
    """TFLOP/s of a large square product of random numbers."""
    side = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return 2 * side**3 / milliseconds(lambda: a @ b, device) / 1e9


def resident_mib(process: int | None = None) -> float:
    """Of this process, or another, on Linux; elsewhere the most that this one ever had."""
    try:
        with open(f"/proc/{process or 'self'}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize() / 2**20
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
