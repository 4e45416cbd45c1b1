"""What a run prints before it starts."""

import pytest
import torch

from hypersphere.config import recipe
from hypersphere.data import Images, Split
from hypersphere.runs.training import announce


def images(count: int, side: int) -> Images:
    pixels = torch.zeros((), dtype=torch.uint8).expand(count, 3, side, side)
    return Images(pixels, torch.zeros(count, dtype=torch.long), ("one",))


@pytest.mark.parametrize(
    ("options", "count", "told"),
    [
        ({"optimizer": "muon", "lr": 0.3}, 5000, "`lr` 0.3 is far above what muon needs"),
        ({"optimizer": "muon", "lr": 0.01}, 5000, ""),
        ({"optimizer": "lars", "lr": 0.3}, 5000, ""),
        ({}, 500, "500 images are few to learn from"),
        ({"size": 32, "stem": "imagenet"}, 500, "500 images are few to learn from"),
        ({"init": "pretrained"}, 500, ""),
        ({"side": 64}, 500, ""),  # not photographs
    ],
)
def test_a_plan_that_the_user_will_regret_has_a_warning(capsys, options, count, told):
    side = options.get("side", 65)
    options = {name: value for name, value in options.items() if name != "side"}
    announce(recipe("simclr", "imagenette-160", **options), Split(images(count, side), images(100, side)))
    plan, *warnings = capsys.readouterr().err.splitlines()
    assert f"{count:,} training images, 100 held out" in plan
    assert [told in warning for warning in warnings] == [True] * bool(told)
