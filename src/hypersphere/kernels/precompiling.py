"""Compile kernels in parallel before they are needed one after the other."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import triton
from triton.runtime.jit import JITFunction

Call = tuple[JITFunction, tuple[Any, ...], dict[str, Any]]


def precompile(function: Callable[[], object], device: torch.device) -> int:
    """Run `function` without launching kernels, then compile all kernels that it would have launched.

    Pass copies of tensors, because their values are meaningless afterwards. Returns the number of launches.
    """
    with _recorded_launches() as calls:
        function()
    with ThreadPoolExecutor() as pool:
        with triton.AsyncCompileMode(pool):
            kernels = [kernel.run(*args, grid=(1,), warmup=True, **options) for kernel, args, options in calls]
        compiled = {id(k): k for k in (k.result() if hasattr(k, "result") else k for k in kernels)}
        index = torch.cuda.current_device() if device.index is None else device.index
        list(pool.map(lambda kernel: _load(kernel, index), compiled.values()))
    return len(calls)


@contextlib.contextmanager
def _recorded_launches() -> Iterator[list[Call]]:
    """Record launches instead of running them, in all threads: gradients are computed in another one."""
    calls: list[Call] = []
    run = JITFunction.run

    def record(kernel: JITFunction, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        calls.append((kernel, args, options))

    JITFunction.run = record
    try:
        yield calls
    finally:
        JITFunction.run = run


def _load(kernel: Any, index: int) -> None:
    torch.cuda.set_device(index)
    _ = kernel.run  # builds its launcher and loads it
