"""What users write: a method, with a weight that its loss does not use, and dropout; and loops of their own."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hypersphere.distributed.collectives import gather
from hypersphere.methods import BYOL, Batch, InfoMin, Method, MoCo, Step
from hypersphere.nn import each_view
from hypersphere.regularize import EnergyRegularizer
from hypersphere.sphere import alignment, uniformity

LOOPS = (BYOL, MoCo, InfoMin)


class Own(Method):
    dropped: list[list[float]] = []  # noqa: RUF012  by update

    def __init__(self, encoder: nn.Module, features: int) -> None:
        super().__init__()
        self.encoder, self.idle = encoder, nn.Linear(features, 4)

    def forward(self, batch: Batch) -> Step:
        z1, z2 = each_view(self.encoder, batch.views)
        mask: Tensor = F.dropout(torch.ones(64))
        self.dropped.append(mask.tolist())
        return self.step("own", alignment(z1 * mask[: z1.shape[1]], z2) + uniformity(z1), z1, z2)


def loop_of_ones_own(kind: type[Method], share: slice) -> dict[str, Tensor]:
    """Gradients and statistics of one update in float64, of a share of the images, with torch's own wrapper."""
    torch.manual_seed(0)
    encoder = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    method = kind(encoder, 6, hidden=8, projection=4).double()
    views = tuple(torch.randn(8, 1, 8, 8, dtype=torch.float64) for _ in range(2))
    shared = DistributedDataParallel(method) if dist.is_initialized() else method
    shared(Batch(tuple(view[share] for view in views), torch.arange(8)[share], None)).loss.backward()
    gradients = {name: p.grad for name, p in method.named_parameters() if p.grad is not None}
    return gradients | {name: x for name, x in method.named_buffers() if "running" in name}


def unequal_shares() -> str:
    """What is told of a batch whose processes have different shares."""
    try:
        gather(torch.ones(3 + dist.get_rank(), 2))
    except ValueError as error:
        return str(error)
    return ""


def sharded_energy() -> tuple[float, dict[str, Tensor]]:
    """Of a network whose weights the processes share out, and the gradients."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5))
    if dist.is_initialized():
        from torch.distributed.fsdp import fully_shard

        fully_shard(model)
    energy = EnergyRegularizer(model)()
    energy.backward()
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return energy.item(), {name: getattr(g, "full_tensor", lambda g=g: g)() for name, g in grads.items()}
