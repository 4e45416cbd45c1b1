"""Does speed change the result? The losses of a run's first updates, as it comes and by the float32 reference."""

import contextlib
import dataclasses
from collections.abc import Iterator

import torch

from hypersphere.config import Config
from hypersphere.data import Images
from hypersphere.optim import warmup_cosine
from hypersphere.runs.build import build_method, plan_of, trainer_of, view_recipe
from hypersphere.runs.machine import Execution
from hypersphere.train import Captured

TOLERANCE = 0.01  # of the reference's loss, at each of the first 50 updates
SEEDS = (0, 1, 2)


def agreement(config: Config, how: Execution, images: Images, updates: int = 50) -> dict[str, dict[str, float]]:
    """By seed: the greatest relative difference of the losses, and that of the reference from itself run again."""
    plain = dataclasses.replace(
        how, precision=torch.float32, layout=torch.contiguous_format, kernels=False, graph=False, compile=False
    )
    found = {}
    for seed in SEEDS:
        seeded = config.replace(seed=seed)
        reference, again = (first_losses(seeded, plain, images, updates) for _ in range(2))
        fast = first_losses(seeded, how, images, updates)
        figures = {
            "difference_in_ten": _greatest(fast[:10], reference[:10]),
            "difference": _greatest(fast, reference),
            "reference_from_itself": _greatest(again, reference),
            "loss_first": reference[0].item(),
            "loss_last": reference[-1].item(),
        }
        found[f"seed {seed}"] = {**figures, "tolerance": TOLERANCE, "holds": float(figures["difference"] <= TOLERANCE)}
    return found


def first_losses(config: Config, how: Execution, images: Images, updates: int) -> torch.Tensor:
    """Of a run of this config, which ends after so many updates of its first epochs."""
    plan = plan_of(config, len(images))
    torch.manual_seed(config.seed)
    with how.applied(), _no_shortened_mantissas(how):
        method = build_method(config, images.channels, len(images.classes)).to(how.device)
        trainer = trainer_of(config, method.to(memory_format=how.layout).train(), how)
        update = Captured(trainer.update, how.device) if trainer.capture else trainer.update
        loader = images.loader(view_recipe(config), config.seed, how.device)
        losses = []
        for step, batch in zip(
            range(updates), loader.training(plan.order(0, how.device), trainer.input_type), strict=False
        ):
            lr = warmup_cosine(step, plan.steps, plan.warmup_epochs * plan.steps_per_epoch, plan.lr)
            terms = update([batch], lr, step / plan.steps)
            losses.append(terms["loss"].clone())
    return torch.stack(losses).double().cpu()


@contextlib.contextmanager
def _no_shortened_mantissas(how: Execution) -> Iterator[None]:
    """A float32 reference without TF32, which torch lets convolutions use."""
    cudnn = torch.backends.cudnn
    with cudnn.flags(
        enabled=True,
        benchmark=cudnn.benchmark,
        allow_tf32=cudnn.allow_tf32 and how.precision != torch.float32,
    ):
        yield


def _greatest(losses: torch.Tensor, reference: torch.Tensor) -> float:
    return ((losses - reference) / reference).abs().max().item()
