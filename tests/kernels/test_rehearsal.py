import pytest
import torch

pytest.importorskip("triton")

from hypersphere.kernels import update
from hypersphere.kernels.rehearsal import rehearse

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="kernels are compiled for a GPU")


def test_a_rehearsal_launches_nothing_and_compiles():
    target, online, tau = (
        torch.zeros(500, device="cuda"),
        torch.ones(500, device="cuda"),
        torch.zeros((), device="cuda"),
    )
    device = torch.cuda.current_device()
    before = len(update.follow_kernel.device_caches[device][0])
    assert rehearse(lambda: update.follow([target], [online], tau), torch.device("cuda", device)) == 1
    assert not target.any()
    assert len(update.follow_kernel.device_caches[device][0]) == before + 1
    update.follow([target], [online], tau)
    assert target.all()
    assert len(update.follow_kernel.device_caches[device][0]) == before + 1
