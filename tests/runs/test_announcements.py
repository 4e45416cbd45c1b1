"""What a run prints before it starts."""

import pytest
import torch

from hypersphere.config import recipe
from hypersphere.data import Images, Split
from hypersphere.runs.training import announce


def images(count: int) -> Images:
    return Images(torch.zeros(count, 3, 1, 1, dtype=torch.uint8), torch.zeros(count, dtype=torch.long), ("one",))


@pytest.mark.parametrize(
    ("options", "count", "told"),
    [
        ({"optimizer": "muon", "lr": 0.3}, 5000, "`lr` 0.3 is far above what muon needs"),
        ({"optimizer": "muon", "lr": 0.01}, 5000, ""),
        ({"optimizer": "lars", "lr": 0.3}, 5000, ""),
        ({}, 500, "500 photographs are few to learn from"),
        ({"init": "pretrained"}, 500, ""),
        ({"size": 32, "stem": "imagenet"}, 500, ""),
    ],
)
def test_a_plan_that_the_user_will_regret_has_a_warning(capsys, options, count, told):
    announce(recipe("simclr", "imagenette-160", **options), Split(images(count), images(100)))
    plan, *warnings = capsys.readouterr().err.splitlines()
    assert f"{count:,} training images, 100 held out" in plan
    assert [told in warning for warning in warnings] == [True] * bool(told)
