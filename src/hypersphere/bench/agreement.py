"""Compares the losses of a run's first updates with those of the float32 reference."""

import contextlib
import dataclasses

import torch

from hypersphere.bench.step import build
from hypersphere.bench.timing import Figures
from hypersphere.config import Config
from hypersphere.data import Images
from hypersphere.optim import warmup_cosine
from hypersphere.runs.build import plan_of, view_pipeline
from hypersphere.runs.machine import Execution

TOLERANCE = 0.01  # largest relative difference of the loss at each of the first 50 updates
SEEDS = (0, 1, 2)


def agreement(config: Config, how: Execution, images: Images, updates: int = 50) -> dict[str, Figures]:
    """By seed: the largest relative difference of the losses, and that of two runs of the reference."""
    plain = dataclasses.replace(
        how, precision=torch.float32, layout=torch.contiguous_format, kernels=False, graph=False, compile=False
    )
    found = {}
    for seed in SEEDS:
        seeded = config.replace(seed=seed)
        reference, again = (first_losses(seeded, plain, images, updates) for _ in range(2))
        fast = first_losses(seeded, how, images, updates)
        figures = {
            "difference_in_ten": _largest_difference(fast[:10], reference[:10]),
            "difference": _largest_difference(fast, reference),
            "reference_from_itself": _largest_difference(again, reference),
            "loss_first": reference[0].item(),
            "loss_last": reference[-1].item(),
        }
        found[f"seed {seed}"] = {**figures, "tolerance": TOLERANCE, "holds": float(figures["difference"] <= TOLERANCE)}
    return found


def first_losses(config: Config, how: Execution, images: Images, updates: int) -> torch.Tensor:
    """Losses of the first updates of a run, of shape (updates,)."""
    plan = plan_of(config, len(images))
    torch.manual_seed(config.seed)
    with how.applied(), _without_tf32(how):
        trainer, update = build(config, how, images.channels, len(images.classes))
        trainer.method.start_trial(len(images))
        loader = images.loader(view_pipeline(config), config.seed, how.device)
        losses, batches = [], loader.training(plan.order(0, how.device), trainer.input_type)
        for step, batch in zip(range(updates), batches, strict=False):
            lr = warmup_cosine(step, plan.steps, plan.warmup_epochs * plan.steps_per_epoch, plan.lr)
            terms = update([batch], lr, step / plan.steps)
            losses.append(terms["loss"].clone())
    return torch.stack(losses).double().cpu()


def _without_tf32(how: Execution) -> contextlib.AbstractContextManager[None]:
    """Switch off TF32, which torch lets convolutions use, for the float32 reference."""
    cudnn = torch.backends.cudnn
    tf32 = cudnn.allow_tf32 and how.precision != torch.float32
    return cudnn.flags(enabled=True, benchmark=cudnn.benchmark, allow_tf32=tf32)


def _largest_difference(losses: torch.Tensor, reference: torch.Tensor) -> float:
    return ((losses - reference) / reference).abs().max().item()
