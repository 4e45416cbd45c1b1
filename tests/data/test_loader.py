import warnings

import pytest
import torch

from hypersphere.data.loader import Crops, StreamLoader
from hypersphere.train import Plan
from hypersphere.views import folder_pipeline
from tests.folders import list_folder
from tests.pictures import draw

CPU = torch.device("cpu")


def test_workers_are_in_the_next_epoch_before_this_one_ends(tmp_path):
    draw(tmp_path, 12)
    plan = Plan(12, 3, batch=4, micro_batch=4, lr=0.0, warmup_epochs=0, seed=0, log_every=1, save_every=None)
    begun = []

    def order():
        for epoch, samples in plan.order(0, CPU):
            begun.append(epoch)
            yield epoch, samples

    loader = StreamLoader(list_folder(tmp_path), folder_pipeline(32), 0, CPU, workers=1)
    coming = loader.training(order(), torch.float32)
    first = [next(coming) for _ in range(3)]
    assert begun == [0, 1]
    both = first + [next(coming) for _ in range(3)]
    alone = [
        batch
        for epoch, samples in plan.order(0, CPU)
        if epoch < 2
        for batch in loader.training([(epoch, samples)], torch.float32)
    ]
    for ahead, one_by_one in zip(both, alone, strict=True):
        torch.testing.assert_close(ahead, one_by_one, rtol=0, atol=0)
    assert not torch.equal(both[0].views[0], both[3].views[0])


def test_the_order_from_any_update_is_the_rest_of_the_whole():
    plan = Plan(11, 3, batch=4, micro_batch=2, lr=0.0, warmup_epochs=0, seed=5, log_every=1, save_every=None)
    whole = [(epoch, part) for epoch, samples in plan.order(0, CPU) for part in samples]
    assert len(whole) == 12
    for start in range(7):
        rest = [(epoch, part) for epoch, samples in plan.order(start, CPU) for part in samples]
        torch.testing.assert_close(rest, whole[2 * start :], rtol=0, atol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is a device to wait for only with a GPU")
def test_finishing_a_batch_does_not_wait_for_the_device(tmp_path):
    draw(tmp_path, 8)
    recipe, cuda = folder_pipeline(64), torch.device("cuda")
    loaders = [StreamLoader(list_folder(tmp_path), recipe, 0, on, workers=0) for on in (CPU, cuda)]
    feeds = [Crops(loader, recipe, torch.float32) for loader in loaders]
    decoded = next(iter(feeds[1].stream([feeds[1].wanted(torch.arange(8), 3)])))
    feeds[1].finish(decoded, 3)  # compiles
    with warnings.catch_warnings(action="ignore"):  # that not every wait is seen
        torch.cuda.set_sync_debug_mode("error")
    try:
        batch = feeds[1].finish(decoded, 3)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    expected = feeds[0].finish(decoded, 3)
    for view, same in zip(batch.views, expected.views, strict=True):
        torch.testing.assert_close(view.cpu(), same, rtol=0, atol=2e-5)
