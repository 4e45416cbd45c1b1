"""OBoW (Gidaris et al. 2021): predict the bag of visual words that a moving-average teacher sees in another view.

Shapes: a map's features B (images) × U (places) × C (channels), words K × C, bags B × K.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hypersphere.distributed.collectives import all_mean, gather
from hypersphere.errors import UserError, first_line
from hypersphere.methods.base import Batch, Method, Step
from hypersphere.methods.prototypes import cosines, swapped
from hypersphere.nn import alike_everywhere, each_view, follow, mlp, target_of
from hypersphere.nn.blocks import blocks_of, heard, places_of, width_of
from hypersphere.nn.norm import Norm
from hypersphere.optim import rising
from hypersphere.sphere import unit
from hypersphere.sphere.unit import without_autocast
from hypersphere.util.draws import WORDS, uniforms


class OBoW(Method):
    """Each scale (block of the encoder) has a vocabulary, a queue of the teacher's features of earlier images. A place
    is shared out among the words by softmax(−distance² / δ), a bag takes of each word the largest share over all places
    (sec. 3.2); the student predicts it by softmax(cos(z, G(words)) / temperature), where a generator G makes weights of
    the words, normalized, as they are now (sec. 3.3). δ is a share of the mean squared distance to the nearest word.

    Published for ImageNet, and as here: 8192 words at each of the last two scales, δ 1/15 of the mean distance, κ = 8
    (temperature 0.125), τ 0.99 rising to 1, MoCo v2's changes of colour, SGD with batch 256, learning rate 0.03, weight
    decay 1e-4, 200 epochs with 10 of warm-up. On CIFAR, which its authors do not have: 2048 words, batch 512.

    Different here: a projector stands between features and prediction, and its output is normalized, where the authors
    take features as they are; the teacher sees the two large views, augmented as the student's, and each is predicted
    from all other views, where theirs sees the middle of the image at 224 pixels and the student two crops of 160 (8 to
    60 % of the area) and five of 96; places at a map's border count too; a new word is the mean of 3 × 3 features
    around a random place where the map is that large, else of all; the learning rate falls to 0, not to a thousandth.
    """

    takes_small_crops = True
    updates: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        hidden: int = 2048,
        projection: int = 128,
        norm: Norm = "batch",
        prototypes: int = 2048,
        temperature: float = 0.125,
        tau: float = 0.99,
        seed: int = 0,
        scales: int = 2,
        sharpness: float = 15.0,
        input_shape: tuple[int, int, int] | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = mlp(features, hidden, projection, norm)
        self.blocks = list(blocks_of(encoder))[-scales:]
        self.target = target_of(encoder)
        widths = [width_of(encoder.get_submodule(name)) for name in self.blocks] or [features]
        if input_shape is not None:
            self.target.eval()
            widths = self._widths(input_shape)
            self.target = target_of(encoder)
        self.generators = nn.ModuleList(alike_everywhere(mlp(width, hidden, projection, norm)) for width in widths)
        self.vocabularies = nn.ModuleList(Vocabulary(prototypes, width, sharpness) for width in widths)
        self.temperature, self.tau, self.seed = temperature, tau, seed
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))

    def forward(self, batch: Batch) -> Step:
        maps = [self._maps(view) for view in batch.views[:2]]  # first, so that torch.compile breaks its graph here
        z = each_view(nn.Sequential(self.encoder, self.projector), batch.views)
        losses = []
        for scale, (vocabulary, generator) in enumerate(zip(self.vocabularies, self.generators, strict=True)):
            assert isinstance(vocabulary, Vocabulary)
            words = vocabulary.words.clone()  # those of this update, for its backward pass too
            bags = [vocabulary.bag(of_view[scale]) for of_view in maps]
            weights = generator(unit(words))
            losses.append(swapped(bags, [cosines(each, weights) for each in z], self.temperature))
            vocabulary.add(maps[0][scale], self._chance(batch.sample))
        self.updates += 1
        return self.step("obow", torch.stack(losses).mean(), *z)

    def _chance(self, sample: Tensor) -> Tensor:
        return uniforms(1, sample, seed=self.seed, epoch=self.updates, stream=WORDS)[:, 0]

    def _widths(self, input_shape: tuple[int, int, int]) -> list[int]:
        """Of the maps, as the teacher makes them: a block's last layer does not say, where others are added to it."""
        like = next(self.target.parameters())
        try:
            return [places.shape[2] for places in self._maps(like.new_zeros(1, *input_shape))]
        except (RuntimeError, ValueError, AssertionError) as error:
            shape = " × ".join(map(str, input_shape))
            raise UserError(f"`encoder` does not take {shape} images ({first_line(error)})") from None

    @torch.no_grad()
    def _maps(self, view: Tensor) -> list[Tensor]:
        """The teacher's features at each scale: what its blocks put out, or, without any, its output."""
        blocks = {name: self.target.get_submodule(name) for name in self.blocks}
        with heard(blocks, lambda x: places_of(x.to(torch.float32, copy=True))) as found:
            output = self.target(view)
        return [found[name] for name in self.blocks] or [output[:, None].float()]

    # as torch.compiler.disable does, which would load the compiler here and now, for everybody
    _maps._torchdynamo_disable = True  # type: ignore[attr-defined]

    def after_step(self, progress: float | Tensor) -> None:
        follow(self.target, self.encoder, rising(self.tau, progress))


class Vocabulary(nn.Module):
    """K words, the newest first, and how far features are from the nearest one."""

    words: Tensor
    distance: Tensor

    def __init__(self, count: int, width: int, sharpness: float, momentum: float = 0.99) -> None:
        super().__init__()
        self.sharpness, self.momentum = sharpness, momentum
        self.register_buffer("words", torch.randn(count, width))
        self.register_buffer("distance", torch.zeros(()))

    @torch.no_grad()
    def bag(self, places: Tensor) -> Tensor:
        """y ∝ max over places of softmax(−‖place − word‖² / δ), δ = mean least distance² / sharpness."""
        squared = squared_distances(places.flatten(0, 1), self.words).unflatten(0, places.shape[:2])
        least = all_mean(squared.amin(dim=2).mean())
        moved = torch.lerp(least, self.distance, self.momentum)
        self.distance.copy_(torch.where(self.distance > 0, moved, least))
        shares = torch.softmax(-self.sharpness * squared / self.distance.clamp(min=1e-12), dim=2)
        return F.normalize(shares.amax(dim=1), p=1, dim=1)

    @torch.no_grad()
    def add(self, places: Tensor, chance: Tensor) -> None:
        """One word of each image takes the place of the oldest."""
        pooled = _pooled(places)
        chosen = (chance * pooled.shape[1]).long()
        new = pooled.gather(1, chosen[:, None, None].expand(-1, 1, pooled.shape[2]))[:, 0]
        self.words.copy_(torch.cat([gather(new), self.words])[: len(self.words)])


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """‖x‖² + ‖y‖² − 2xyᵀ, in single precision."""
    with without_autocast(x):
        return (x.square().sum(dim=1)[:, None] + y.square().sum(dim=1) - 2 * x @ y.T).clamp(min=0)


def _pooled(places: Tensor) -> Tensor:
    """Means of 3 × 3 neighbours, of square maps that have as many; else of all places."""
    side = round(places.shape[1] ** 0.5)
    if side < 3 or side * side != places.shape[1]:
        return places.mean(dim=1, keepdim=True)
    square = places.transpose(1, 2).unflatten(2, (side, side))
    return F.avg_pool2d(square, kernel_size=3, stride=1).flatten(2).transpose(1, 2)
