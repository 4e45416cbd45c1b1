"""What is computed on a stream of its own is what would have been computed here."""

import pytest
import torch
from torch import nn

from hypersphere.nn import on_side_stream

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="streams are a GPU's")


def network(device="cpu"):
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(8))).to(device)


def test_it_has_no_gradients():
    x = torch.randn(4, 2048, requires_grad=True)
    slow = network()
    with on_side_stream(lambda: (slow(x),), x) as result:
        beside = slow(x)
    (found,) = result()
    assert beside.requires_grad
    assert not found.requires_grad
    torch.testing.assert_close(found, beside.detach())


def test_on_a_cpu_it_waits_until_it_is_asked_for():
    done = []
    with on_side_stream(lambda: (done.append(1) or torch.zeros(1),), torch.zeros(1)) as result:
        assert not done
    result()
    assert done == [1]


@on_a_gpu
def test_streams_wait_for_each_other():
    """Its input is made, and its result used, by work that is still under way when the next is asked for."""
    slow = network("cuda")
    start = torch.randn(4096, 2048, device="cuda")
    with torch.no_grad():
        wanted = slow(slow(slow(start))) + slow(slow(start))
        for _ in range(20):
            x = slow(start)
            with on_side_stream(lambda x=x: (slow(slow(x)),), x) as result:
                beside = slow(x)
            (found,) = result()
            torch.testing.assert_close(found + beside, wanted, rtol=0, atol=0)
            del x, found, beside, result


@on_a_gpu
def test_it_can_be_recorded():
    slow, x = network("cuda"), torch.zeros(256, 2048, device="cuda")

    def both():
        with on_side_stream(lambda: (slow(x),), x) as result:
            beside = slow(2 * x).detach()
        return beside, *result()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        both()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        found = both()
    for _ in range(3):
        x.normal_()
        graph.replay()
        torch.testing.assert_close(found, both())


@on_a_gpu
def test_a_mistake_beside_it_is_what_is_told():
    """In a recording too, which would otherwise complain of a stream that was not joined."""
    slow, x = network("cuda"), torch.zeros(256, 2048, device="cuda")
    slow(x)
    torch.cuda.synchronize()
    with (
        pytest.raises(ValueError, match="the reason"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
        on_side_stream(lambda: (slow(x),), x),
    ):
        raise ValueError("the reason")
    assert slow(x).isfinite().all()
