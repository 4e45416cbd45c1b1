"""BatchNorm over the batch of two processes, against torch's, which is for GPUs alone."""

import os

import pytest
import torch
from torch import nn

from hypersphere.distributed.rendezvous import joined
from hypersphere.nn.norm import BatchNorm2d


def compared(rank: int, port: int) -> None:
    """Both on one GPU, over gloo: nccl wants one each."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    with joined(torch.device("cpu"), 60):
        device = torch.device("cuda", 0)
        torch.manual_seed(rank)
        ours, theirs = BatchNorm2d(6).to(device), nn.SyncBatchNorm(6).to(device)
        with torch.no_grad():
            for norm in (ours, theirs):
                norm.weight.copy_(torch.linspace(0.5, 2, 6))
                norm.bias.copy_(torch.linspace(-1, 1, 6))
        x = (torch.randn(4, 6, 5, 5, device=device) * 3 + 10 * (rank + 1)).requires_grad_()
        pull = torch.randn_like(x)
        found = []
        for norm in (ours, theirs):
            y = norm(x)
            gradients = torch.autograd.grad(y, [x, norm.weight, norm.bias], pull)
            found.append([y, *gradients, norm.running_mean, norm.running_var, norm.num_batches_tracked])
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch's SyncBatchNorm needs a GPU")
def test_our_synchronized_norm_is_torchs():
    torch.multiprocessing.spawn(compared, args=(29517,), nprocs=2)
