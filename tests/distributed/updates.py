"""Two updates of every method, by one process or by a share of each of several: what the tests compare."""

from functools import partial
from unittest.mock import patch

import torch
from torch import Tensor, nn

from hypersphere.config import Config, recipe
from hypersphere.distributed.collectives import mine, split_over_ranks
from hypersphere.methods import METHODS, Batch, moco
from hypersphere.nn import ENCODERS
from hypersphere.runs.build import build_method, trainer_of
from hypersphere.runs.machine import training_execution
from tests.networks import those_of


def tiny(channels: int, stem: str, norm: str) -> nn.Module:
    """Two blocks, with torch's own BatchNorm as encoders of other libraries have it."""
    blocks = [
        nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())
        for inputs, outputs in ((channels, 6), (6, 8))
    ]
    encoder = nn.Sequential(*blocks, nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    encoder.num_features = 8  # type: ignore[assignment]
    return encoder


ENCODERS["tests/tiny"] = tiny
SMALL = {
    "encoder": "tests/tiny",
    "hidden": 16,
    "projection": 6,
    "device": "cpu",
    "optimizer": "sgd",
    "weight_decay": 0.0,
}
SPREADING = {"uniformity": 0.3, "koleo": 0.2, "variance_covariance": 0.1, "sigreg": 0.1}
CASES: dict[str, Config] = {
    **{name: recipe(name, "digits", **those_of(name, **SMALL, prototypes=6, queue=24)) for name in METHODS},
    "byol with what spreads projections, and energy": recipe("byol-mhe", "digits", **SMALL, **SPREADING),
    "swav with a queue": recipe("swav", "digits", **SMALL, prototypes=6, codes_queue=10),
    "infomin in one group": recipe("infomin", "digits", **SMALL, queue=24, batch=12, micro_batch=6),
    "simclr in micro-batches, orthogonal": recipe(
        "simclr", "digits", **SMALL, batch=16, micro_batch=8, orthogonality=0.1
    ),
}
IMAGES = 24
GROUP = 8  # images that share statistics in MoCo, here


def batches_of(config: Config, update: int, dtype: torch.dtype) -> list[Batch]:
    """Whole micro-batches: two of MoCo's groups, or what the config says."""
    generator = torch.Generator().manual_seed(update)
    draw = partial(torch.randn, generator=generator, dtype=dtype)
    sizes = [config.micro_batch] * 2 if config.micro_batch else [2 * GROUP]
    crops = 1 if METHODS[config.method].takes_small_crops else 0
    made = []
    for size in sizes:
        sample = torch.randperm(IMAGES, generator=generator)[:size]
        views = [draw(size, 1, 8, 8) + place for place in range(2)] + [draw(size, 1, 4, 4)] * crops
        label = torch.where(sample < 7, -1, sample % 10)  # some are not known
        made.append(Batch(tuple(views), sample, label))
    return made


def own_part(batch: Batch) -> Batch:
    return Batch(tuple(mine(view) for view in batch.views), mine(batch.sample), mine(batch.label))


@patch.object(moco, "GROUP", GROUP)
def state_after(config: Config) -> dict[str, Tensor]:
    """Gradients of the first update (SGD's momentum after it), and everything after the second."""
    torch.manual_seed(0)
    dtype = torch.float32 if config.method == "obow" else torch.float64  # its words are single
    method = build_method(config, 1, 10).to(dtype).train()
    trainer = trainer_of(config, method, training_execution(config))
    trainer.join()
    pixels = torch.rand(IMAGES, 1, 8, 8, generator=torch.Generator().manual_seed(9), dtype=dtype)
    found: dict[str, Tensor] = {}
    for update in (1, 2):
        method.start_epoch(
            lambda: [split_over_ranks(part, method.encoder.eval()) for part in pixels.split(IMAGES // 2)]
        )
        method.train()
        terms = trainer.update([own_part(batch) for batch in batches_of(config, update, dtype)], 0.05, 0.5)
        if update == 1:
            moved = [p for group in trainer.optimizer.param_groups for p in group["params"]]
            names = {p: name for name, p in method.named_parameters()}
            found |= {f"gradient of {names[p]}": trainer.optimizer.state[p]["momentum"].clone() for p in moved}
    return found | method.state_dict() | {f"term {name}": value for name, value in terms.items()}


def all_states() -> dict[str, dict[str, Tensor]]:
    return {name: state_after(config) for name, config in CASES.items()}
