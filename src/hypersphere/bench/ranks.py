"""What several processes cost: python -m hypersphere.bench.ranks, and the same under torchrun.

The model: an update takes the time of computing, then of sending gradients, then of a wait for each of many small
messages (BatchNorm's statistics, and what losses gather). Under torchrun it is put beside the measured time; one
process prints what it says of large encoders on usual networks.
"""

import json
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.flop_counter import FlopCounterMode

from hypersphere.build import build_method, trainer_of
from hypersphere.collectives import rank, size
from hypersphere.config import Config, recipe
from hypersphere.joining import joined
from hypersphere.machine import execution_of
from hypersphere.methods import Batch
from hypersphere.nn import keep_views_apart
from hypersphere.nn.norm import PerView
from hypersphere.train import Trainer

UPDATES = 20  # the shortest of so many counts: other work on the machine only adds
LARGE = {"ResNet-50": "torchvision/resnet50", "ViT-B/16": "torchvision/vit_b_16"}
SMALL: dict[str, tuple[Config, tuple[int, ...]]] = {  # images of each process
    "digits": (recipe("byol", "digits", device="cpu"), (128, 1, 8, 8)),
    "ResNet-18": (recipe("byol", "cifar10", device="cpu", hidden=512), (4, 3, 32, 32)),
}


def trainer_for(config: Config, channels: int) -> Trainer:
    torch.manual_seed(0)
    method = build_method(config, channels).train()
    keep_views_apart(method)
    return trainer_of(config, method, execution_of(config))


def images(shape: tuple[int, ...]) -> Batch:
    return Batch((torch.randn(shape), torch.randn(shape)), torch.arange(shape[0]), None)


def shortest(work: Callable[[], object], repeats: int = UPDATES) -> float:
    """Milliseconds."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return 1e3 * min(times)


def gradients(trainer: Trainer) -> torch.Tensor:
    """As many numbers as an update sends."""
    return torch.zeros(sum(p.numel() for p in trainer.method.parameters() if p.requires_grad))


def messages(work: Callable[[], object]) -> int:
    """Small ones of an update, each of which is waited for."""
    count = 0
    kept: tuple[Any, Any] = (dist.all_reduce, dist.all_gather)

    def counting(send: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            return send(*given, **options)

        return counted

    dist.all_reduce, dist.all_gather = counting(kept[0]), counting(kept[1])
    try:
        work()
    finally:
        dist.all_reduce, dist.all_gather = kept
    return count


def alone(config: Config, shape: tuple[int, ...]) -> float:
    trainer, batch = trainer_for(config, shape[1]), images(shape)
    return shortest(lambda: trainer.update([batch], 0.01, 0.5))


def jointly(config: Config, shape: tuple[int, ...]) -> dict[str, float]:
    trainer, batch = trainer_for(config, shape[1]), images(shape)
    trainer.join()

    def update() -> None:
        trainer.update([batch], 0.01, 0.5)

    update()
    numbers, few = gradients(trainer), torch.zeros(128)
    return {
        "update_ms": shortest(update),
        "small_messages": messages(update),
        "gradient_mb": numbers.nbytes / 1e6,
        "gradients_ms": shortest(lambda: dist.all_reduce(numbers)),
        "message_ms": shortest(lambda: dist.all_reduce(few), 200),
    }


def large(encoder: str) -> dict[str, float]:
    """Of BYOL on 224 × 224 images: operations for an image, bytes of gradients, small messages of an update."""
    trainer = trainer_for(recipe("byol", "imagenet", device="cpu", encoder=encoder), 3)
    calls = [0, 0]  # forward, backward

    def note(norm: PerView, given: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        calls[0] += 1
        calls[1] += output.requires_grad

    for module in trainer.method.modules():
        if isinstance(module, PerView):
            module.register_forward_hook(note)
    counter = FlopCounterMode(display=False)
    with counter:
        trainer.update([images((2, 3, 224, 224))], 0.01, 0.5)
    parameters = gradients(trainer)
    found = {"gflop_an_image": counter.get_total_flops() / 2e9, "gradient_mb": parameters.nbytes / 1e6}
    return found | {"small_messages": sum(calls) + 1}  # and one of the logged terms


# nodes of 8 GPUs, and Gbit/s between them: inside a node NVLink's, each way; otherwise of the node's network card
NETWORKS = {"1 node, NVLink": (1, 3600)} | {f"{n} nodes, {r} Gbit/s": (n, r) for n in (2, 8) for r in (10, 100, 400)}
GPU_TFLOPS = 165.0  # of an H200 without our BatchNorm kernels and CUDA graphs: 9.17 TFLOP in 55.4 ms (NOTES.md)
MESSAGE_MS = 0.05  # a small message between GPUs: assumed, not measured
AT_ONCE = 256  # images of each GPU


def efficiencies(found: dict[str, float]) -> dict[str, float]:
    """Computing / all: where nothing is sent while gradients are computed, and where as much as fits is."""
    computing = AT_ONCE * found["gflop_an_image"] / GPU_TFLOPS
    waiting = found["small_messages"] / 2 * MESSAGE_MS  # both views go through together on a GPU
    shown = {}
    for name, (nodes, gbit) in NETWORKS.items():
        ring = nodes if nodes > 1 else 8
        sending = 2 * (ring - 1) / ring * found["gradient_mb"] / (gbit / 8)
        for told, hidden in (
            ("in turn", 0.0),
            ("overlapping", computing / 2),
        ):  # half of BYOL's operations are backward
            shown[f"{name}, {told}"] = round(computing / (computing + max(0.0, sending - hidden) + waiting), 2)
    return {"computing_ms": computing, **shown}


def main() -> None:
    torch.set_num_threads(1)
    found: dict[str, Any] = {name: {"alone_ms": alone(*case)} for name, case in SMALL.items()}
    with joined(torch.device("cpu"), 600):
        for name, case in SMALL.items() if size() > 1 else ():
            found[name] |= (measured := jointly(*case))
            sending = measured["gradients_ms"] + measured["small_messages"] * measured["message_ms"]
            found[name]["predicted_ms"] = found[name]["alone_ms"] + sending
        if rank() == 0:
            for name, encoder in LARGE.items() if size() == 1 else ():
                found[name] = (counted := large(encoder)) | efficiencies(counted)
            print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
