import math

import pytest
import torch

pytest.importorskip("triton")

from hypersphere.build import build_method, energies_of
from hypersphere.config import recipe
from hypersphere.data import load_data
from hypersphere.kernels import update
from hypersphere.kernels.rehearsal import rehearse
from hypersphere.machine import execution_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="kernels are compiled for a GPU")


def test_a_rehearsal_launches_nothing_and_compiles():
    target, online, tau = (
        torch.zeros(500, device="cuda"),
        torch.ones(500, device="cuda"),
        torch.zeros((), device="cuda"),
    )
    compiled = update.follow_kernel.device_caches[torch.cuda.current_device()][0]
    assert rehearse(lambda: update.follow([target], [online], tau), target.device) == 1
    assert not target.any()
    known = len(compiled)
    update.follow([target], [online], tau)
    assert target.all()
    assert len(compiled) == known > 0


def test_energies_have_nothing_left_to_compile(monkeypatch):
    from triton.runtime.jit import JITFunction

    config, how = (found := recipe("byol", "digits", hidden=32)), execution_of(found)
    learnt, held_out = (some.to(how.device) for some in load_data("digits", "validation", None))
    method = build_method(config, learnt.channels).to(how.device).to(memory_format=how.layout)
    compiled = []
    compile_one = JITFunction._do_compile
    monkeypatch.setattr(
        JITFunction, "_do_compile", lambda kernel, *given: (compiled.append(kernel), compile_one(kernel, *given))[1]
    )
    energies = energies_of(config, method, held_out, how)
    rehearse(lambda: energies(method.encoder), how.device)
    noted = len(compiled)
    assert all(math.isfinite(value) for value in energies(method.encoder).values())
    assert len(compiled) == noted
