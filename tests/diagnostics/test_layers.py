import pytest
import torch
from torch import nn

from hypersphere.diagnostics.layers import EnergyMonitor, block_outputs
from hypersphere.nn import build_encoder
from hypersphere.sphere import hyperspherical_energy, uniformity
from tests.sphere import reference


def test_blocks_are_averaged_over_the_image():
    encoder, images = build_encoder("torchvision/resnet18", stem="cifar").eval(), torch.randn(3, 3, 16, 16)
    with torch.no_grad():
        found = block_outputs(encoder, images)
        stem = encoder.bn1(encoder.conv1(images)).relu()
        first = encoder.layer1(stem)
    assert {name: tuple(x.shape) for name, x in found.items()} == {
        "layer1": (3, 64), "layer2": (3, 128), "layer3": (3, 256), "layer4": (3, 512), "output": (3, 512)
    }  # fmt: skip
    torch.testing.assert_close(found["layer1"], first.mean(dim=(2, 3)))
    torch.testing.assert_close(found["layer4"], found["output"])
    assert not encoder.layer1._forward_hooks


def test_what_comes_next_may_overwrite_a_block():
    def block(width):
        return nn.Sequential(nn.Conv2d(width, 4, 3, padding=1), nn.BatchNorm2d(4))

    encoder, images = nn.Sequential(block(3), nn.ReLU(inplace=True), block(4)).eval(), torch.randn(3, 3, 8, 8)
    with torch.no_grad():
        found = block_outputs(encoder, images)
        torch.testing.assert_close(found["0"], encoder[0](images).mean(dim=(2, 3)))
    assert found["0"].min() < 0


def test_the_monitor_measures_and_leaves_everything_as_it_was():
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.BatchNorm1d(6), nn.Dropout(0.5))
    encoder[3].eval()
    head, inputs = nn.Linear(6, 5), torch.randn(20, 3, 2, 2)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    found = EnergyMonitor(10, lambda: inputs.split(7), {"head": head}, torch.float32)(encoder)
    assert [module.training for module in encoder] == [True, True, True, False]
    assert all(torch.equal(value, encoder.state_dict()[name]) for name, value in before.items())
    with torch.no_grad():
        outputs = encoder.eval()(inputs)
    assert found.keys() == {"energy/output", "energy_of_weights/head", "uniformity_of_features"}
    assert found["uniformity_of_features"] == pytest.approx(float(uniformity(outputs)), rel=1e-5)
    assert found["energy/output"] == pytest.approx(float(hyperspherical_energy(outputs, 2, "geodesic")), rel=1e-5)
    rows = nn.functional.normalize(head.weight.detach().double())
    assert found["energy_of_weights/head"] == pytest.approx(
        float(reference.pair_sum(rows, reference.geodesic(2))) / 20, rel=1e-5
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="kernels are compiled for a GPU")
def test_the_kernels_of_energies_are_compiled_side_by_side(monkeypatch):
    pytest.importorskip("triton")
    from triton.runtime.jit import JITFunction

    from hypersphere.kernels import pairwise_kernels

    for kernel in vars(pairwise_kernels).values():
        if isinstance(kernel, JITFunction):
            kernel.device_caches.clear()
    ahead, compile_one = [], JITFunction._do_compile
    monkeypatch.setattr(
        JITFunction, "_do_compile", lambda kernel, *given: (ahead.append(given[-1]), compile_one(kernel, *given))[1]
    )
    encoder, head = nn.Sequential(nn.Flatten(), nn.Linear(27, 48)).cuda(), nn.Linear(24, 40).cuda()
    inputs = torch.randn(64, 3, 3, 3, device="cuda")
    monitor = EnergyMonitor(1, lambda: [inputs], {"head": head}, torch.float32)
    first, again = monitor(encoder), monitor(encoder)
    assert first == again
    assert len(ahead) > 1
    assert all(ahead)
