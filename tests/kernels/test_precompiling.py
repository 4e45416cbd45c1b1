import pytest
import torch

pytest.importorskip("triton")

from hypersphere.kernels import update
from hypersphere.kernels.precompiling import precompile

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="kernels are compiled for a GPU")


def test_a_rehearsal_launches_nothing_and_compiles():
    target, online, tau = (
        torch.zeros(500, device="cuda"),
        torch.ones(500, device="cuda"),
        torch.zeros((), device="cuda"),
    )
    compiled = update.ema_kernel.device_caches[torch.cuda.current_device()][0]
    assert precompile(lambda: update.ema_update([target], [online], tau), target.device) == 1
    assert not target.any()
    known = len(compiled)
    update.ema_update([target], [online], tau)
    assert target.all()
    assert len(compiled) == known > 0
