"""Each operation of RandAugment against torchvision's or PIL's, one image at a time with the same parameters."""

import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as tv

from hypersphere.util.random_numbers import OPERATIONS as STREAM
from hypersphere.util.random_numbers import uniforms
from hypersphere.views import PIPELINES, POLICIES, Views, pipeline
from hypersphere.views.randaugment import DEVIATION, NAMES, NUMBERS, chosen, operation, randaugment, selected


class Crossings(TorchDispatchMode):
    """What reads numbers of one device for another."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        copied = function._schema.name in ("aten::_to_copy", "aten::copy_")  # of a number, too
        tensors = [x for x in tree_leaves((args, kwargs, found)) if isinstance(x, torch.Tensor)]
        if len({x.device.type for x in tensors if x.ndim or copied}) > 1:
            self.names.add(function._schema.name.removeprefix("aten::"))
        return found


FILL = (0.5, 0.25, 0.75)
LEVEL = torch.tensor([0.4, 0.83, 0.97, 1.0])


@pytest.fixture
def images():
    """As bytes have them; one without contrast, one of few values."""
    made = torch.randint(0, 256, (4, 3, 20, 28)) / 255
    made[1, 0] = 40 / 255
    made[2] = (made[2] * 3).round() / 5
    return (made * 255).round() / 255


def done(name, images, sign=1.0):
    return operation(name, images, LEVEL, sign * LEVEL, torch.tensor(FILL))


def one_by_one(images, operation, *parameters):
    return torch.stack([operation(image, *(p[i].item() for p in parameters)) for i, image in enumerate(images)])


FACTOR = 0.1 + 1.8 * LEVEL
WHOLE = [4 * LEVEL, 256 * LEVEL, 110 * LEVEL]


def as_bytes(image):
    return (image * 255).round().to(torch.uint8)


def solarize_add(image, add):
    """Literally, by a table of 256 values."""
    table = [min(255, i + int(add)) if i < 128 else i for i in range(256)]
    return torch.tensor(table)[as_bytes(image).long()] / 255


@pytest.mark.parametrize(
    ("name", "theirs", "parameters"),
    [
        ("autocontrast", tv.autocontrast, ()),
        ("equalize", lambda x: tv.equalize(as_bytes(x)) / 255, ()),
        ("invert", tv.invert, ()),
        ("posterize", lambda x, bits: tv.posterize(as_bytes(x), int(bits)) / 255, (WHOLE[0],)),
        ("solarize", lambda x, t: x if t > 255 else tv.solarize(as_bytes(x), int(t)) / 255, (WHOLE[1],)),
        ("solarize_add", solarize_add, (WHOLE[2],)),
        ("colour", tv.adjust_saturation, (FACTOR,)),
        ("contrast", tv.adjust_contrast, (FACTOR,)),
        ("brightness", tv.adjust_brightness, (FACTOR,)),
        ("sharpness", tv.adjust_sharpness, (FACTOR,)),
    ],
)
def test_colours_are_torchvisions(name, theirs, parameters, images):
    torch.testing.assert_close(done(name, images), one_by_one(images, theirs, *parameters), atol=2e-5, rtol=0)


def turned(image, degrees, fill):
    return tv.rotate(image, degrees, InterpolationMode.BILINEAR, fill=fill)


def sheared(image, x, y, fill):
    """Around the corner, as PIL's transform is; torchvision takes the angle."""
    shear = [math.degrees(math.atan(x)), math.degrees(math.atan(y))]
    options = {"center": [0, 0], "interpolation": InterpolationMode.BILINEAR, "fill": fill}
    return tv.affine(image, angle=0, translate=[0, 0], scale=1, shear=shear, **options)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("rotate", lambda x, level, fill: turned(x, 30 * level, fill)),
        ("shear_x", lambda x, level, fill: sheared(x, 0.3 * level, 0, fill)),
        ("shear_y", lambda x, level, fill: sheared(x, 0, 0.3 * level, fill)),
    ],
)
def test_geometry_is_torchvisions(name, theirs, sign, images):
    """But for the edge, which they darken: there our pixels lie between the image and the fill."""
    ours = done(name, images, sign)
    wanted = one_by_one(images, lambda x, level: theirs(x, level, list(FILL)), sign * LEVEL)
    share = one_by_one(torch.ones_like(images), lambda x, level: theirs(x, level, [0.0]), sign * LEVEL).sqrt()
    apart = (share < 1e-3) | (share > 1 - 1e-3)
    assert apart.float().mean() > 0.85
    torch.testing.assert_close(ours[apart], wanted[apart], atol=1e-3, rtol=0)
    white = operation(name, torch.ones_like(images), LEVEL, sign * LEVEL, torch.zeros(3))
    torch.testing.assert_close(white, share, atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("name", "matrix"),
    [
        ("shear_x", (1, 0.3, 0, 0, 1, 0)),
        ("shear_y", (1, 0, 0, 0.3, 1, 0)),
        ("translate_x", (1, 0, 0.45 * 28, 0, 1, 0)),
        ("translate_y", (1, 0, 0, 0, 1, 0.45 * 20)),
    ],
)
def test_geometry_is_pils_where_the_image_is(name, matrix, images):
    """At full strength; the edge, which PIL cuts and we blend, and its rounding to bytes aside."""
    picture = Image.fromarray(as_bytes(images[3]).permute(1, 2, 0).numpy())
    fill = tuple(round(255 * value) for value in FILL)
    wanted = picture.transform(picture.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR, fillcolor=fill)
    gap = (done(name, images)[3].permute(1, 2, 0) - torch.from_numpy(np.array(wanted)) / 255).abs().amax(2)
    assert (gap > 0.01).float().mean() < 0.08
    assert gap.median() < 0.005


def test_each_image_has_operations_of_its_own(images):
    """Literally, one image after the other; half of the operations are left out."""
    u = torch.rand(4, 3, NUMBERS)
    found = randaugment(images, u, FILL)
    for n, image in enumerate(images):
        one = image[None]
        for which, whether, first, second, sign in u[n].tolist():
            normal = math.sqrt(-2 * math.log1p(-first)) * math.cos(2 * math.pi * second)
            level = torch.tensor([min(1, max(0, 1 + DEVIATION * normal))])
            signed = -level if sign < 0.5 else level
            if whether < 0.5:
                one = operation(NAMES[int(which * 15)], one, level, signed, torch.tensor(FILL))
        torch.testing.assert_close(found[n], one[0], atol=1e-5, rtol=0)
    assert torch.equal(randaugment(images, u, FILL), found)
    assert torch.equal(randaugment(images, u.clamp(min=0.5), FILL), images)


def test_without_waiting_the_images_are_the_same():
    """Each operation, none, and levels of both signs."""
    images = torch.rand(64, 3, 12, 16)
    which, level = torch.arange(64) % 16 - 1, torch.rand(64)
    signed = torch.where(torch.arange(64) % 5 < 2, level, -level)
    wanted = chosen(images, which, level, signed, torch.tensor(FILL))
    torch.testing.assert_close(selected(images, which, level, signed, torch.tensor(FILL)), wanted)
    assert torch.equal(wanted[which < 0], images[which < 0])


@pytest.mark.skipif(torch.__version__ < "2.9", reason="fake tensors of a GPU ask for its driver")
def test_on_a_gpu_nothing_waits():
    """No number leaves the device, and none comes from outside it: as FakeTensors show, which know places only."""
    with FakeTensorMode(), Crossings() as seen:
        images, u = torch.empty(8, 3, 32, 32, device="cuda"), torch.empty(8, 2, NUMBERS, device="cuda")
        assert randaugment(images, u, FILL).device.type == "cuda"
        assert seen.names == set()
        torch.empty(1).to("cuda")
        assert seen.names  # it would be noticed
        with pytest.raises(DataDependentOutputException):
            randaugment(torch.empty(8, 3, 65, 65, device="cuda"), u, FILL)


def test_all_operations_are_drawn_about_equally_and_at_nearly_full_strength():
    u = uniforms(2 * NUMBERS, torch.arange(6000), seed=0, stream=STREAM).view(-1, NUMBERS)
    counts = (u[:, 0] * len(NAMES)).long().bincount(minlength=15)
    assert counts.min() > 0.85 * 12_000 / 15
    assert counts.max() < 1.15 * 12_000 / 15
    assert len(set(NAMES)) == 15


def test_views_have_them_and_are_of_the_sample_alone():
    how = pipeline.replace(POLICIES["infomin"], operations=2)
    recipe = pipeline.replace(PIPELINES["cifar10"], augmentations=(how, how))
    pixels = torch.randint(0, 256, (40, 3, 32, 32), dtype=torch.uint8)
    one, other = Views(recipe, seed=3).training(pixels, torch.arange(40), epoch=2)
    some, _ = Views(recipe, seed=3).training(pixels, torch.tensor([7, 31]), epoch=2)
    torch.testing.assert_close(some, one[[7, 31]])
    plain = pipeline.replace(recipe, augmentations=(pipeline.replace(how, operations=0),) * 2)
    before, _ = Views(plain, seed=3).training(pixels, torch.arange(40), epoch=2)
    changed = ((one - before).abs().amax((1, 2, 3)) > 1e-3).float().mean()
    assert 0.5 < changed < 0.95  # ¾, but for those that do nothing at full strength
    assert not torch.equal(one, other)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a GPU itself tells who waits for it")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")  # is not said to see all of them
def test_on_this_gpu_nothing_waits():
    images, u = torch.rand(8, 3, 32, 32, device="cuda"), torch.rand(8, 2, NUMBERS, device="cuda")
    randaugment(images, u, FILL)
    torch.cuda.set_sync_debug_mode("error")
    try:
        randaugment(images, u, FILL)
        with pytest.raises(RuntimeError, match="synchronizing"):
            images.sum().item()
    finally:
        torch.cuda.set_sync_debug_mode("default")
