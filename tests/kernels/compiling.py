"""Compile every kernel of a training step for a GPU that is not here, and print its registers.

    python -m tests.kernels.compiling 90          # for compute capability 9.0: all, half a minute
    python -m tests.kernels.compiling 90 views    # those of views alone
    python -m tests.kernels.compiling 90 stem     # those of the first layers of ResNets on photographs alone

The steps run on the CPU, where each launch only compiles: results are meaningless. PROGRAM is the shared memory of a
program in bytes. GPUs offer 101,376 (compute capability 8.6, 8.9 and 12.0), 166,912 (8.0) or 232,448 (9.0 and 10.0).
"""

import dataclasses
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from hypersphere import kernels
from hypersphere.config import recipe
from hypersphere.data import Images
from hypersphere.kernels import norm, pool, stem_7x7
from hypersphere.runs.build import build_method, trainer_of, trial_update, view_pipeline
from hypersphere.runs.machine import training_execution
from hypersphere.util.random_numbers import VIEWS, Key
from hypersphere.views import packed
from hypersphere.views.packed import PackedImages
from tests.networks import those_of

CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


class AbsentGPU:
    """What Triton asks its driver for before it compiles."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_launches(capability: int) -> dict[int, Any]:
    """From now on, compile launched kernels instead of running them; returns the dictionary that they go into."""
    compiled: dict[int, Any] = {}
    run = JITFunction.run

    def compile_only(kernel: JITFunction, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        made = run(kernel, *args, grid=(1,), warmup=True, **options)
        compiled[id(made)] = made
        return made

    JITFunction.run = compile_only
    driver.set_active(AbsentGPU(capability))
    kernels.runs_on = lambda x: True
    return compiled


def update(name: str, data: str, precision: torch.dtype) -> None:
    """A step on images in memory."""
    small = those_of(name, hidden=64, projection=16)
    config = recipe(name, data, device="cpu", batch=8, encoder="torchvision/resnet18", **small)
    how = dataclasses.replace(training_execution(config), precision=precision, layout=torch.channels_last)
    method = build_method(config, 3, 10).to(memory_format=how.layout).train()
    trainer = trainer_of(config, method, how)
    side = 32 if data.startswith("cifar") else 160
    images = Images(torch.zeros(8, 3, side, side, dtype=torch.uint8), torch.zeros(8, dtype=torch.long), ("a",))
    trial_update(config, trainer.method, how, images, 8)()


def crops(name: str, dtype: torch.dtype) -> None:
    """Views of photographs of different sizes."""
    pipeline = view_pipeline(recipe(name, "imagenet"))
    heights, widths = torch.tensor([[375, 500], [500, 333]], dtype=torch.int32)
    images = PackedImages(
        torch.zeros(2 * 3 * 500 * 500, dtype=torch.uint8), torch.tensor([0, 562_500]), heights, widths
    )
    given = (pipeline, images, torch.arange(2), Key(0, 1, VIEWS), dtype)
    for view, how in enumerate(pipeline.augmentations):
        packed.fused(how, *given, view=view)


def first_layers(dtype: torch.dtype) -> None:
    """Convolution, BatchNorm, ReLU and max-pooling, with their gradients."""
    x = torch.zeros(4, 3, 128, 128, dtype=dtype).to(memory_format=torch.channels_last)
    weight = torch.zeros(64, 3, 7, 7, dtype=dtype, requires_grad=True)
    held = [torch.ones(64), torch.zeros(64), torch.zeros(64), torch.ones(64), torch.zeros((), dtype=torch.long)]
    y, sums = stem_7x7.convolve(x, weight, torch.zeros(64), 2)
    pool.batch_norm_and_pool(y, norm.Norm(*held, 1e-5, 0.1, 2, True), sums).sum().backward()


def resources(kernel: Any) -> dict[str, int]:
    """Registers, and bytes of local memory (spilled registers) of a thread."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        shown = subprocess.run([CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    counts = dict(re.findall(r"(REG|STACK|LOCAL):(\d+)", shown))
    return {name: int(count) for name, count in counts.items()}


def lines(compiled: dict[int, Any]) -> Iterator[dict[str, Any]]:
    for kernel in compiled.values():
        yield {"name": kernel.metadata.name, **resources(kernel), "PROGRAM": kernel.metadata.shared}


if __name__ == "__main__":
    found = compile_launches(int(sys.argv[1]))
    if "views" in sys.argv:
        crops("byol", torch.bfloat16)
    elif "stem" in sys.argv:
        first_layers(torch.bfloat16)
    else:
        first_layers(torch.bfloat16)
        for precision in (torch.float32, torch.bfloat16):
            update("byol-uni-mhe", "cifar10", precision)
            update("simclr", "imagenette-160", precision)
            for name in ("byol", "swav", "simclr"):
                crops(name, precision)
    for line in lines(found):
        print(json.dumps(line))
