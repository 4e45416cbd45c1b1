"""Losses against formulas written out in float64, and against lightly and pytorch-metric-learning if installed."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import gradcheck

import hypersphere as hs
from hypersphere import losses
from tests.methods import reference
from tests.methods.small import literal_swapped


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def views(count=2, n=7, d=5):
    return [draw(n, d, seed=seed).requires_grad_() for seed in range(count)]


def gradients(loss, inputs):
    found = torch.autograd.grad(loss, inputs, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def assert_alike(ours, theirs, inputs, factor=1.0):
    """In value and gradient."""
    torch.testing.assert_close(ours, factor * theirs)
    wanted = [factor * g for g in gradients(theirs, inputs)]
    torch.testing.assert_close(gradients(ours, inputs), wanted)


def literal_dcl(z1, z2, temperature):
    points = F.normalize(torch.cat([z1, z2]))
    n, total = len(z1), 0
    for i in range(2 * n):
        positive = (i + n) % (2 * n)
        others = [points[i] @ points[j] / temperature for j in range(2 * n) if j not in (i, positive)]
        total = total - points[i] @ points[positive] / temperature + sum(o.exp() for o in others).log()
    return total / (2 * n)


def literal_vicreg(z1, z2):
    """The listing of the paper's appendix: pseudocode of torch."""
    n, d = z1.shape
    repeated = ((z1 - z2) ** 2).sum() / (n * d)
    spread = 0
    for z in (z1, z2):
        deviation = (z.var(dim=0) + 1e-4).sqrt()
        spread = spread + 25 * (1 - deviation).clamp(min=0).sum() / d / 2
        covariance = torch.cov(z.T)
        spread = spread + (covariance**2).sum() / d - (covariance.diagonal() ** 2).sum() / d
    return 25 * repeated + spread


@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_dcl_is_its_equation(temperature):
    z1, z2 = inputs = views()
    assert_alike(losses.dcl(z1, z2, temperature), literal_dcl(z1, z2, temperature), inputs)
    assert gradcheck(lambda a, b: losses.dcl(a, b, temperature), inputs)


def test_dcl_keeps_its_digits_if_positives_dominate():
    """As nt_xent minus its positive, it would be log(e^100 + e^(-100) − e^100)."""
    z = torch.eye(3)
    assert losses.dcl(z, z, 0.01).item() == pytest.approx(math.log(4) - 100)


def test_vicreg_is_the_papers_listing():
    z1, z2 = inputs = [(z.detach() / 2).requires_grad_() for z in views()]
    assert_alike(losses.vicreg_loss(z1, z2), literal_vicreg(z1, z2), inputs)


def test_negative_cosine_and_byol_loss_differ_by_a_factor():
    p, z = inputs = views()
    assert_alike(losses.negative_cosine(p, z) * 2 + 2, losses.byol_loss(p, z), inputs)


def test_swav_predicts_codes_that_use_all_prototypes():
    scores = [F.normalize(view) @ F.normalize(draw(4, 5, seed=9)).T for view in views(3)]
    earlier = [F.normalize(draw(6, 5, seed=seed)) @ F.normalize(draw(4, 5, seed=9)).T for seed in (7, 8)]
    codes = []
    for now, old in zip(scores, earlier, strict=False):
        q = (torch.cat([now.detach(), old]) / 0.05).exp()
        for _ in range(3):
            q = q / q.sum(dim=0)
            q = q / q.sum(dim=1, keepdim=True)
        codes.append(q[:7])
    torch.testing.assert_close(losses.swav_loss(scores, queue=earlier), literal_swapped(codes, scores, 0.1))


def test_dino_is_centred_and_its_centre_moves():
    student, teacher = views(4, 6, 8), [x.detach() for x in views(2, 6, 8)]
    loss = losses.DINOLoss(8, teacher_temperature=0.07, momentum=0.8).double()
    loss.centre.copy_(draw(8, seed=5) / 10)
    targets = [F.softmax((t - loss.centre) / 0.07, dim=1) for t in teacher]
    wanted, centre = literal_swapped(targets, student, 0.1), 0.8 * loss.centre + 0.2 * torch.cat(teacher).mean(0)
    torch.testing.assert_close(loss(student, teacher), wanted)
    torch.testing.assert_close(loss.centre, centre)
    loss.eval()(student, teacher)
    torch.testing.assert_close(loss.centre, centre)  # stays


def test_moco_loss_compares_with_the_queue_as_it_was():
    query, key = (x.detach() for x in views())
    loss = losses.MoCoLoss(5, queue=10, temperature=0.2).double()
    before = loss.queue.clone()
    for _ in range(2):
        torch.testing.assert_close(loss(query, key), reference.moco(query, key, before, 0.2))
        before = torch.cat([F.normalize(key), before])[:10]
        torch.testing.assert_close(loss.queue, before)
    assert "queue" in loss.state_dict()


STATELESS = {  # module, function, number of inputs
    "byol": (losses.BYOLLoss(), losses.byol_loss, 2),
    "simsiam": (losses.NegativeCosineLoss(), losses.negative_cosine, 2),
    "nt_xent": (losses.NTXentLoss(), losses.nt_xent, 2),
    "info_nce": (losses.InfoNCELoss(), losses.info_nce, 2),
    "dcl": (losses.DCLLoss(), losses.dcl, 2),
    "barlow": (losses.BarlowTwinsLoss(), losses.barlow_loss, 2),
    "vicreg": (losses.VICRegLoss(), losses.vicreg_loss, 2),
    "variance_covariance": (losses.VarianceCovarianceLoss(), losses.variance_covariance, 1),
    "uniformity": (losses.UniformityLoss(), losses.uniformity, 1),
    "alignment": (losses.AlignmentLoss(), losses.alignment, 2),
    "koleo": (losses.KoLeoLoss(), losses.koleo, 1),
    "energy": (losses.EnergyLoss(), losses.hyperspherical_energy, 1),
}


@pytest.mark.parametrize("name", STATELESS)
def test_modules_have_the_defaults_of_their_functions(name):
    module, function, count = STATELESS[name]
    inputs = views(count)
    assert torch.equal(module(*inputs), function(*inputs))
    assert not module.state_dict()


@pytest.mark.parametrize("name", STATELESS)
def test_half_precision_is_computed_in_float32(name):
    module, _, count = STATELESS[name]
    inputs = [x.detach().bfloat16().requires_grad_() for x in views(count)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = module(*inputs)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, module(*[x.detach().float() for x in inputs]), rtol=1e-5, atol=1e-5)
    found.backward()
    assert inputs[0].grad.isfinite().all()


def test_a_temperature_may_be_a_parameter():
    loss = losses.DCLLoss(nn.Parameter(torch.tensor(0.2)))
    assert [*loss.parameters()] == [loss.temperature]
    loss(*(x.float() for x in views())).backward()
    assert loss.temperature.grad.abs() > 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: losses.dcl(draw(4, 3), draw(5, 3)), "same shape N × D"),
        (lambda: losses.dcl(draw(1, 3), draw(1, 3)), "at least two images"),
        (lambda: losses.dcl(draw(4, 3), draw(4, 3), 0), "temperature must be finite and above 0, got 0"),
        (lambda: losses.moco_loss(draw(4, 3), draw(4, 3), draw(5, 2)), "queue must have 3 dimensions"),
        (lambda: losses.swav_loss([draw(4, 3)]), "at least 2 views, got 1"),
        (lambda: losses.swav_loss([draw(4, 3), draw(4, 2)]), "must have the same shape"),
        (lambda: losses.dino_loss([draw(4, 3)], [draw(4, 3)]), "at least two views, got 1"),
        (lambda: losses.vicreg_loss(draw(4, 3), draw(4, 3), -1), "invariance must be finite and at least 0"),
        (lambda: losses.vicreg_loss(draw(1, 3), draw(1, 3)), "at least two points"),
        (lambda: losses.barlow_loss(draw(1, 3), draw(1, 3)), "barlow_loss needs at least two images"),
    ],
)
def test_mistakes_are_one_line(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def lightly_cases():
    """(ours, theirs, factor) of functions of two views; `docs/reference/losses.md` has the same factors."""
    theirs = pytest.importorskip("lightly.loss")
    return {
        "nt_xent": (lambda a, b: losses.nt_xent(a, b, 0.5), theirs.NTXentLoss(temperature=0.5), 1),
        "dcl": (losses.dcl, theirs.DCLLoss(), 1),
        "barlow": (losses.barlow_loss, theirs.BarlowTwinsLoss(), 1 / 5),
        "vicreg": (losses.vicreg_loss, theirs.VICRegLoss(), 1),
        "negative_cosine": (losses.negative_cosine, lambda p, z: theirs.NegativeCosineSimilarity()(p, z.detach()), 1),
        "byol": (
            losses.byol_loss,
            lambda p, z: 1 + theirs.NegativeCosineSimilarity()(p, z.detach()),
            2,
        ),
        "uniformity": (lambda a, b: losses.uniformity(a) + losses.uniformity(b), _hypersphere_uniformity, 1),
        "koleo": (lambda a, b: losses.koleo(a), lambda a, b: theirs.KoLeoLoss()(a), 1),
    }


def _hypersphere_uniformity(a, b):
    """align_uniform, https://github.com/SsnL/align_uniform: `torch.pdist` of normalized features."""
    return sum(torch.pdist(F.normalize(x)).pow(2).mul(-2).exp().mean().log() for x in (a, b))


@pytest.mark.parametrize(
    "name", ["nt_xent", "dcl", "barlow", "vicreg", "negative_cosine", "byol", "uniformity", "koleo"]
)
def test_lightly_agrees(name):
    ours, theirs, factor = lightly_cases()[name]
    inputs = [x.detach().float().requires_grad_() for x in views(2, 32, 5)]
    found, wanted = ours(*inputs), factor * theirs(*inputs)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    for a, b in zip(gradients(found, inputs), gradients(wanted, inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_lightlys_losses_of_prototypes_agree():
    theirs = pytest.importorskip("lightly.loss")
    student = [x.float() / 3 for x in views(4, 8, 6)]
    teacher = [x.detach() for x in student[:2]]
    swav = theirs.SwaVLoss()(student[:2], student[2:], teacher[::-1]).squeeze()
    torch.testing.assert_close(losses.swav_loss(student, queue=teacher[::-1]), swav, rtol=1e-4, atol=1e-5)
    loss, other = losses.DINOLoss(6), theirs.DINOLoss(6)
    for _ in range(2):
        torch.testing.assert_close(loss(student, teacher), other(teacher, student), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(loss.centre, other.center.flatten())


def test_lightlys_memory_bank_is_a_queue():
    """NTXentLoss with a memory bank is MoCo's loss; its bank is D × M, and it moves in rings."""
    theirs = pytest.importorskip("lightly.loss")
    query, key = (x.detach().float() for x in views())
    other = theirs.NTXentLoss(temperature=0.1, memory_bank_size=(20, 5))
    other(query, key)  # the first call fills the bank
    bank = other.memory_bank.bank.detach().clone()
    bank = bank if bank.shape[1] == 5 else bank.T
    torch.testing.assert_close(losses.moco_loss(query, key, bank), other(query, key), rtol=1e-4, atol=1e-5)


def test_metric_learning_agrees():
    theirs = pytest.importorskip("pytorch_metric_learning.losses")
    z1, z2 = (x.float() for x in views())
    labels = torch.arange(7).repeat(2)
    wanted = theirs.NTXentLoss(temperature=0.1)(torch.cat([z1, z2]), labels)
    torch.testing.assert_close(losses.nt_xent(z1, z2, 0.1), wanted, rtol=1e-4, atol=1e-5)
    wanted = theirs.VICRegLoss()(z1, ref_emb=z2)
    torch.testing.assert_close(losses.vicreg_loss(z1, z2), wanted, rtol=1e-3, atol=1e-3)


def test_every_method_calls_a_loss_from_here():
    """A method's loss is that of its function: changed here, changed there."""
    batch = hs.methods.Batch((torch.rand(6, 3, 4, 4), torch.rand(6, 3, 4, 4)), torch.arange(6), None)
    called = {
        "byol": "byol_loss", "simclr": "nt_xent", "simsiam": "negative_cosine", "moco": "moco_loss",
        "infomin": "moco_loss", "barlow": "barlow_loss", "vicreg": "vicreg_loss", "swav": "swav_loss",
        "dino": "dino_loss", "obow": "swapped_prediction",
    }  # fmt: skip
    for name, function in called.items():
        kind = hs.methods.METHODS[name]
        module = hs.methods.MoCo.forward if name == "infomin" else kind.forward
        options = {"jigsaw": 2} if name == "infomin" else {}
        encoder = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 6), nn.BatchNorm1d(6))
        method = kind(encoder, 6, hidden=8, projection=4, **options)
        names = module.__globals__
        assert names[function] is getattr(losses, function), name
        original, twin = names[function], copy.deepcopy(method)
        names[function] = lambda *args, original=original, **options: 3 * original(*args, **options)
        try:
            tripled = method(batch).loss
        finally:
            names[function] = original
        torch.testing.assert_close(tripled, 3 * twin(batch).loss)


def test_losses_are_still_found_where_version_0_2_had_them():
    for name in ("byol_loss", "info_nce", "koleo", "nt_xent", "sigreg", "spherical_mmd", "variance_covariance"):
        with pytest.warns(DeprecationWarning, match=f"{name} is now in hypersphere.losses"):
            assert getattr(hs.sphere, name) is getattr(losses, name)
    with pytest.raises(AttributeError, match="no attribute 'hinge'"):
        hs.sphere.hinge  # noqa: B018
