"""OBoW, against a literal reading of its equations in float64."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hypersphere.errors import UserError
from hypersphere.methods import OBoW
from hypersphere.methods.obow import Vocabulary
from tests.methods.small import assert_same_loss, batch, in_double, literal_cosines, literal_swapped, made


def test_a_bag_has_of_each_word_the_largest_share_over_places():
    vocabulary, places = Vocabulary(7, 4, sharpness=15.0), torch.randn(3, 9, 4)
    with torch.no_grad():
        vocabulary.distance.fill_(2.0)
    words = vocabulary.words.double()
    squared = torch.tensor([[[((p - w) ** 2).sum() for w in words] for p in image] for image in places.double()])
    distance = 0.99 * 2.0 + 0.01 * squared.amin(2).mean()
    shares = torch.softmax(-15 * squared / distance, dim=2).amax(1)
    bag = vocabulary.bag(places)
    torch.testing.assert_close(bag.double(), shares / shares.sum(1, keepdim=True), rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(vocabulary.distance.double(), distance, rtol=1e-5, atol=0)
    fresh = Vocabulary(7, 4, sharpness=15.0)
    fresh.bag(places)
    nearest = torch.cdist(places.flatten(0, 1), fresh.words).square().amin(1).mean()
    torch.testing.assert_close(fresh.distance, nearest)  # no average with what there was not


def test_a_vocabulary_takes_one_word_of_each_image_and_forgets_the_oldest():
    vocabulary, places = Vocabulary(7, 4, sharpness=1.0), torch.randn(5, 16, 4)
    before = vocabulary.words.clone()
    vocabulary.add(places, torch.tensor([0.0, 0.25, 0.5, 0.75, 0.99]))
    maps = places.view(5, 4, 4, 4)
    corners = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 1)]  # of the four 3 × 3 squares of a 4 × 4 map
    wanted = [maps[n, r : r + 3, c : c + 3].mean((0, 1)) for n, (r, c) in enumerate(corners)]
    torch.testing.assert_close(vocabulary.words[:5], torch.stack(wanted))
    assert torch.equal(vocabulary.words[5:], before[:2])
    vocabulary.add(places[:, :4], torch.zeros(5))  # too small a map
    torch.testing.assert_close(vocabulary.words[:5], places[:, :4].mean(1))
    vocabulary.add(torch.randn(9, 1, 4), torch.zeros(9))  # more images than words
    assert vocabulary.words.shape == (7, 4)


def test_obow_predicts_the_teachers_bags_of_the_other_views_at_two_scales():
    method, data = made(OBoW, prototypes=7), batch()
    with torch.no_grad():
        for weight in method.target.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    twin, views, z = in_double(method, data)
    assert method.blocks == ["0", "1"]
    with torch.no_grad():
        first = [twin.target[0](view) for view in views[:2]]
        maps = [first, [twin.target[1](x) for x in first]]
    words = [vocabulary.words.clone() for vocabulary in method.vocabularies]
    wanted = 0
    for scale, of_views in enumerate(maps):
        bags, distance = [], None
        for x in of_views:
            squared = torch.cdist(x.flatten(2).mT, words[scale].double()).square()
            least = squared.amin(2).mean()
            distance = least if distance is None else 0.99 * distance + 0.01 * least
            shares = torch.softmax(-15 * squared / distance, dim=2).amax(1)
            bags.append(shares / shares.sum(1, keepdim=True))
        weights = twin.generators[scale](F.normalize(words[scale].double()))
        wanted = wanted + literal_swapped(bags, [literal_cosines(each, weights) for each in z], 0.125) / 2
    assert_same_loss(method, method(data), twin, wanted, "encoder", "projector", "generators")
    assert all(weight.grad is None for weight in method.target.parameters())
    assert not any((v.words == w).all() for v, w in zip(method.vocabularies, words, strict=True))
    assert method.updates == 1


def test_obow_without_blocks_takes_the_output_as_its_scale():
    flat = nn.Sequential(nn.Flatten(), nn.Linear(12, 6))
    method = OBoW(flat, 6, hidden=16, projection=5, prototypes=7, input_shape=(3, 2, 2))
    method(batch(sizes=(2, 2)))
    assert [vocabulary.words.shape for vocabulary in method.vocabularies] == [(7, 6)]


class Dense(nn.Module):
    """Adds its channels to those it is given, as a block of a DenseNet does."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(3, 4, kernel_size=3, padding=1), nn.BatchNorm2d(4))

    def forward(self, x):
        return torch.cat([x, self.inner(x)], dim=1)


class ChannelsLast(nn.Module):
    """B × H × W × C, as a block of a Swin transformer gives it."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(7, 6), nn.GELU())

    def forward(self, x):
        return self.inner(x.permute(0, 2, 3, 1))


def test_words_are_as_wide_as_what_the_blocks_put_out():
    encoder = nn.Sequential(Dense(), ChannelsLast(), nn.Flatten(), nn.Linear(4 * 4 * 6, 6), nn.BatchNorm1d(6))
    state = {name: value.clone() for name, value in encoder.state_dict().items()}
    encoder[1].eval()
    method = OBoW(encoder, 6, hidden=16, projection=5, prototypes=9, input_shape=(3, 4, 4))
    assert [vocabulary.words.shape for vocabulary in method.vocabularies] == [(9, 7), (9, 6)]
    for network in (method.encoder, method.target):
        assert all(torch.equal(value, network.state_dict()[name]) for name, value in state.items())
        assert [part.training for part in network] == [True, False, True, True, True]
    data = batch(sizes=(4, 4))
    method(data).loss.backward()
    with torch.no_grad():
        pictures = data.views[0]
        wide = method.target[0](pictures)
        channels = method.target[1](wide)
    for vocabulary, pixels in zip(method.vocabularies, (wide, channels.permute(0, 3, 1, 2)), strict=True):
        means = F.avg_pool2d(pixels, kernel_size=3, stride=1).flatten(2).mT  # of which each image gave one
        distances = torch.cdist(vocabulary.words[:8, None], means)
        torch.testing.assert_close(distances.amin(dim=(1, 2)), torch.zeros(8), atol=1e-3, rtol=0)


def test_an_encoder_of_other_images_is_told():
    flat = nn.Sequential(nn.Flatten(), nn.Linear(12, 6))
    with pytest.raises(UserError, match=r"`encoder` does not accept 3 × 4 × 4 images \(.*mat1 and mat2"):
        OBoW(flat, 6, input_shape=(3, 4, 4))
