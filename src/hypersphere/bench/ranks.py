"""The cost of distributed training: python -m hypersphere.bench.ranks, alone or under torchrun.

The model: an update computes, sends gradients, and waits for each of many small messages (statistics of BatchNorm, and
what losses gather). Under torchrun, the model is compared with the measured time. A single process prints what the
model predicts for large encoders on common networks.
"""

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.flop_counter import FlopCounterMode

from hypersphere.config import Config, recipe
from hypersphere.distributed.collectives import rank, world_size
from hypersphere.distributed.rendezvous import joined
from hypersphere.methods import Batch
from hypersphere.nn import separate_view_statistics, skip_synchronization
from hypersphere.nn.norm import PerViewBatchNorm
from hypersphere.runs.build import build_method, trainer_of
from hypersphere.runs.machine import training_execution
from hypersphere.train import Trainer

TURNS = 15  # repetitions of each measurement
MESSAGES = 20  # small messages per measurement
LARGE = {"ResNet-50": "torchvision/resnet50", "ViT-B/16": "torchvision/vit_b_16"}
SMALL: dict[str, tuple[Config, tuple[int, ...]]] = {  # batch of each process
    "digits": (recipe("byol", "digits", device="cpu"), (128, 1, 8, 8)),
    "ResNet-18": (recipe("byol", "cifar10", device="cpu", hidden=512), (4, 3, 32, 32)),
}


def trainer_for(config: Config, channels: int) -> Trainer:
    """A trainer with a seed, whose views have separate BatchNorm statistics."""
    torch.manual_seed(0)
    method = build_method(config, channels).train()
    separate_view_statistics(method)
    return trainer_of(config, method, training_execution(config))


def images(shape: tuple[int, ...]) -> Batch:
    """A random batch of two views of the given shape."""
    return Batch((torch.randn(shape), torch.randn(shape)), torch.arange(shape[0]), None)


def medians(**works: Callable[[], object]) -> dict[str, float]:
    """Median milliseconds of each function, measured in turns, so that other work slows all of them equally."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(TURNS):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            times[name].append(1e3 * (time.perf_counter() - began))
    return {name: statistics.median(each) for name, each in times.items()}


def gradients(trainer: Trainer) -> torch.Tensor:
    """A tensor as large as the gradients that an update sends."""
    return torch.zeros(sum(p.numel() for p in trainer.method.parameters() if p.requires_grad))


def without_messages(work: Callable[[], object]) -> int:
    """Call a function with collectives switched off, and return how many messages it would have sent."""
    kept: tuple[Any, Any] = (dist.all_reduce, dist.all_gather)
    count = 0

    def note(*given: Any) -> None:
        nonlocal count
        count += 1

    def copy(parts: list[torch.Tensor], x: torch.Tensor) -> None:
        note()
        for part in parts:
            part.copy_(x)

    dist.all_reduce, dist.all_gather = note, copy  # type: ignore[assignment]
    try:
        work()
    finally:
        dist.all_reduce, dist.all_gather = kept
    return count


def measured(config: Config, shape: tuple[int, ...]) -> dict[str, float]:
    """Time an update alone, an update of all processes together, and its parts.

    The parts are computing (with BatchNorm as several operations), sending gradients, and the small messages.
    """
    apart, computing, together = (trainer_for(config, shape[1]) for _ in range(3))
    skip_synchronization(apart.method)
    together.join()
    batch, numbers, few, square = images(shape), gradients(together), torch.zeros(128), torch.randn(384, 384)

    def update(trainer: Trainer) -> None:
        trainer.update([batch], 0.01, 0.5)

    def pieces(messages: bool) -> None:
        """Matrix products of about a millisecond, with or without a message after each."""
        for _ in range(MESSAGES):
            square @ square
            if messages:
                dist.all_reduce(few)

    update(together)
    found = medians(
        apart_ms=lambda: update(apart),
        computing_ms=lambda: without_messages(lambda: update(computing)),
        together_ms=lambda: update(together),
        gradients_ms=lambda: dist.all_reduce(numbers),
        with_messages=lambda: pieces(True),
        without=lambda: pieces(False),
    )
    found["message_ms"] = (found.pop("with_messages") - found.pop("without")) / MESSAGES
    found |= {"small_messages": without_messages(lambda: update(computing)), "gradient_mb": numbers.nbytes / 1e6}
    predicted = found["computing_ms"] + found["gradients_ms"] + found["small_messages"] * found["message_ms"]
    return found | {"predicted_ms": predicted}


def large(encoder: str) -> dict[str, float]:
    """Operations per image, bytes of gradients and small messages of an update of BYOL on 224 × 224 images."""
    trainer = trainer_for(recipe("byol", "imagenet", device="cpu", encoder=encoder), 3)
    calls = [0, 0]  # forward, backward

    def note(norm: PerViewBatchNorm, given: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        calls[0] += 1
        calls[1] += output.requires_grad

    for module in trainer.method.modules():
        if isinstance(module, PerViewBatchNorm):
            module.register_forward_hook(note)
    counter = FlopCounterMode(display=False)
    with counter:
        trainer.update([images((2, 3, 224, 224))], 0.01, 0.5)
    parameters = gradients(trainer)
    found = {"gflop_an_image": counter.get_total_flops() / 2e9, "gradient_mb": parameters.nbytes / 1e6}
    return found | {"small_messages": sum(calls) + 1}  # plus one for the logged terms


# number of nodes with 8 GPUs, and Gbit/s between them: NVLink (each way) in a node, the network card between nodes
NETWORKS = {"1 node, NVLink": (1, 3600)} | {f"{n} nodes, {r} Gbit/s": (n, r) for n in (2, 8) for r in (10, 100, 400)}
GPU_TFLOPS = 165.0  # an H200 without our BatchNorm kernels and CUDA graphs: 9.17 TFLOP in 55.4 ms (NOTES.md)
MESSAGE_MS = 0.05  # a small message between GPUs: assumed, not measured
GPU_BATCH = 256  # images per GPU


def efficiencies(found: dict[str, float]) -> dict[str, float]:
    """Share of computing in the time of an update, by network: without overlap of sending, and with as much as fits."""
    computing = GPU_BATCH * found["gflop_an_image"] / GPU_TFLOPS
    waiting = found["small_messages"] / 2 * MESSAGE_MS  # both views go through together on a GPU
    shown = {}
    for name, (nodes, gbit) in NETWORKS.items():
        ring = nodes if nodes > 1 else 8
        sending = 2 * (ring - 1) / ring * found["gradient_mb"] / (gbit / 8)
        for mode, hidden in (("in turn", 0.0), ("overlapping", computing / 2)):  # half of BYOL's operations: backward
            shown[f"{name}, {mode}"] = round(computing / (computing + max(0.0, sending - hidden) + waiting), 2)
    return {"computing_ms": computing, **shown}


def main() -> None:
    """Print the figures as JSON."""
    torch.set_num_threads(1)
    with joined(torch.device("cpu"), 600):
        if world_size() > 1:
            found = {name: measured(*case) for name, case in SMALL.items()}
        else:
            found = {name: (times := large(encoder)) | efficiencies(times) for name, encoder in LARGE.items()}
        if rank() == 0:
            print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
