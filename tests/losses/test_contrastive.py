import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck

import hypersphere as hs
from tests.sphere import reference


def views(n=5, d=4):
    return (torch.randn(n, d, dtype=torch.float64, requires_grad=True) for _ in range(2))


def test_byol_loss_is_two_minus_two_cosines_and_stops_at_the_target():
    p, z = views()
    loss = hs.byol_loss(p, z)
    torch.testing.assert_close(loss, (2 - 2 * F.cosine_similarity(p, z)).mean())
    loss.backward()
    assert p.grad is not None
    assert z.grad is None


@pytest.mark.parametrize("temperature", [0.07, 0.5])
def test_nt_xent_is_the_literal_loop(temperature):
    z1, z2 = views()
    torch.testing.assert_close(hs.nt_xent(z1, z2, temperature), reference.nt_xent(z1, z2, temperature))
    assert gradcheck(lambda a, b: hs.nt_xent(a, b, temperature), (z1, z2))


def test_info_nce_is_cross_entropy_over_keys_and_negatives():
    q, k = views()
    queue = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    logits = F.normalize(q) @ F.normalize(torch.cat([k, queue])).T / 0.2
    wanted = F.cross_entropy(logits, torch.arange(5))
    torch.testing.assert_close(hs.info_nce(q, k, 0.2, queue), wanted)
    assert gradcheck(lambda a, b, c: hs.info_nce(a, b, 0.2, c), (q, k, queue))
    with pytest.raises(ValueError, match="negative"):
        hs.info_nce(q[:1], k[:1])


def test_a_temperature_can_be_learnt():
    """As cross-entropy of the cosines says it, compiled too."""
    query, key = views()
    temperature = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    logits = F.normalize(query) @ F.normalize(key).T / temperature
    wanted = torch.autograd.grad(F.cross_entropy(logits, torch.arange(5)), (query, key, temperature))
    compiled = torch.compile(hs.info_nce, fullgraph=True, backend="aot_eager")
    for loss in (hs.info_nce, compiled):
        found = torch.autograd.grad(loss(query, key, temperature), (query, key, temperature))
        torch.testing.assert_close(found, wanted)
    assert gradcheck(hs.nt_xent, (query, key, temperature))
    assert gradcheck(hs.uniformity, (query, temperature))
    for loss in (hs.info_nce, hs.nt_xent):
        torch.testing.assert_close(loss(query, key, temperature.reshape(1)), loss(query, key, 0.3))
    assert hs.uniformity(query, temperature.reshape(1, 1)).shape == ()
    with pytest.raises(ValueError, match=r"temperature must be one number, got a tensor of shape \(2,\)"):
        hs.info_nce(query, key, torch.ones(2))
    with pytest.raises(TypeError, match="the power s must be one number without gradient, got a tensor"):
        hs.hyperspherical_energy(query, temperature)


def test_types_may_differ():
    query, key = views()
    wanted = hs.info_nce(query, key.float().double())
    torch.testing.assert_close(hs.info_nce(query, key.float()), wanted)
    torch.testing.assert_close(hs.info_nce(key.float(), query), hs.info_nce(key.float().double(), query))
    assert hs.info_nce(query.float(), key.float(), negatives=key).dtype == torch.float64


def test_what_are_no_points_is_told():
    with pytest.raises(ValueError, match="at least one dimension"):
        hs.uniformity(torch.zeros(4, 0))
    with pytest.raises(TypeError, match=r"torch\.as_tensor"):
        hs.byol_loss(torch.zeros(4, 2), torch.zeros(4, 2).numpy())


@pytest.mark.parametrize("loss", [hs.uniformity, hs.variance_covariance, hs.hyperspherical_energy])
def test_one_graph_where_all_numbers_may_change(loss):
    torch._dynamo.reset()
    x = torch.randn(12, 6)
    compiled = torch.compile(loss, backend="eager", dynamic=True, fullgraph=True)
    assert torch.allclose(compiled(x), loss(x))


def test_another_temperature_is_no_break_in_the_graph():
    torch._dynamo.reset()
    x, y = torch.randn(12, 6), torch.randn(12, 6)
    compiled = torch.compile(hs.nt_xent, backend="eager", fullgraph=True)
    for temperature in (0.5, 0.4, 0.3):
        assert torch.allclose(compiled(x, y, temperature), hs.nt_xent(x, y, temperature))


@pytest.mark.parametrize("alpha", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_what_is_no_number_is_not_aligned(alpha, wrong):
    x = torch.randn(4, 3)
    x[0, 0] = wrong
    assert hs.alignment(x, torch.randn(4, 3), alpha).isnan()
