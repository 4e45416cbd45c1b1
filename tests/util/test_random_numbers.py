import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hypersphere.util.random_numbers import (
    FEW_LABELS,
    FEW_SHOT,
    ORDER,
    PROBE,
    PROBE_ORDER,
    SPLIT,
    VIEWS,
    Key,
    permutation,
    philox,
    uniforms,
)

# Known answers of Random123 for philox4x32-10: counter, key, words.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_philox_gives_the_known_answers(counter, key, words):
    assert tuple(int(w) for w in philox(tuple(torch.tensor(c) for c in counter), key)) == words


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), epoch=st.integers(0, 10_000), view=st.integers(0, 7), n=st.integers(1, 50))
def test_a_number_depends_on_its_own_sample_alone(seed, epoch, view, n):
    samples = torch.randperm(50_000)[:n]
    every = uniforms(9, samples, seed=seed, epoch=epoch, view=view)
    one = uniforms(9, samples[-1:], seed=seed, epoch=epoch, view=view)
    assert torch.equal(every[-1:], one)
    assert ((every >= 0) & (every < 1)).all()


def test_numbers_differ_in_every_argument():
    sample = torch.arange(3)
    base = {"seed": 1, "epoch": 1, "view": 0, "stream": VIEWS}
    numbers = uniforms(4, sample, **base)
    for change in ({"seed": 2}, {"epoch": 2}, {"view": 1}, {"stream": ORDER}):
        assert (uniforms(4, sample, **{**base, **change}) != numbers).all()


def test_numbers_are_uniform_and_uncorrelated():
    u = uniforms(8, torch.arange(20_000), seed=3).double()
    assert (u.mean(0) - 0.5).abs().max() < 0.01
    assert (u.var(0) - 1 / 12).abs().max() < 0.002
    assert (torch.corrcoef(u.T) - torch.eye(8)).abs().max() < 0.03


def test_an_order_is_a_permutation_that_changes_with_the_epoch():
    first, again, next_ = (permutation(1000, seed=5, epoch=e) for e in (0, 0, 1))
    assert torch.equal(first, again)
    assert torch.equal(first.sort().values, torch.arange(1000))
    assert (first == next_).float().mean() < 0.02
    assert (first == torch.arange(1000)).float().mean() < 0.02


def test_orders_are_pinned():
    """Splits and resumed runs rely on these numbers for ever."""
    assert permutation(8, seed=0, epoch=3).tolist() == [6, 3, 4, 2, 5, 1, 0, 7]


def test_streams_do_not_share_numbers():
    """Sorting by the numbers of one stream leaves those of another unsorted."""
    for order in (ORDER, PROBE_ORDER, SPLIT, FEW_SHOT, FEW_LABELS):
        for stream in (VIEWS, PROBE):
            u = uniforms(1, permutation(1000, seed=3, epoch=2, stream=order), seed=3, epoch=2, stream=stream)[:, 0]
            assert 0.4 < (u.diff() > 0).float().mean() < 0.6


def test_the_linear_probe_sees_crops_in_no_order():
    from torch import nn

    from hypersphere.data import load_data
    from hypersphere.data.loader import MemoryLoader
    from hypersphere.evaluate import linear
    from hypersphere.views import PIPELINES, Views
    from hypersphere.views.pipeline import draw

    train, test = load_data("digits")
    recipe, sizes = PIPELINES["digits"], []

    class Spy(Views):
        def probing(self, pixels, sample, epoch, dtype):
            d = draw(recipe.probe, (8, 8), sample, Key(0, epoch, PROBE), view=0)
            sizes.append((d.height * d.width).mean())
            return super().probing(pixels, sample, epoch)

    linear(nn.Flatten(), *(MemoryLoader(some, Spy(recipe, 0)) for some in (train, test)), epochs=1)
    areas = torch.stack(sizes)
    assert areas.max() - areas.min() < 10  # of 64 pixels; sorted crops would run from 32 to 64
