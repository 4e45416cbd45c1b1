"""OBoW (Gidaris et al. 2021): predict the bag of visual words that a moving-average teacher sees in another view.

Shapes: features of a map (B images, U places, C channels), words (K, C), bags (B, K).
"""

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hypersphere.distributed.collectives import all_mean, gather
from hypersphere.errors import UserError, first_line
from hypersphere.losses import swapped_prediction
from hypersphere.methods.base import Batch, Method, Step
from hypersphere.methods.options import Count, Positive, Several, Share
from hypersphere.methods.prototypes import cosines
from hypersphere.methods.recipes import SMALL_HEADS, TRANSFORMER
from hypersphere.nn import each_view, ema_update, make_target, mlp, skip_synchronization
from hypersphere.nn.blocks import blocks_of, heard, to_positions, width_of
from hypersphere.nn.norm import Norm
from hypersphere.optim import rising
from hypersphere.sphere import unit
from hypersphere.sphere.unit import without_autocast
from hypersphere.util.option_fields import Limits
from hypersphere.util.random_numbers import WORDS, uniforms


class OBoW(Method):
    """OBoW: the student predicts the teacher's bag of visual words of another view.

    Each scale (block of the encoder) has a vocabulary, a queue of the teacher's features of earlier images. A place
    assigns shares to the words by softmax(−distance² / δ), and a bag takes the largest share of each word over all
    places (sec. 3.2). δ is a share of the mean squared distance to the nearest word. The student predicts the bag by
    softmax(cos(z, G(words)) / temperature), where a generator G makes normalized weights from the current words (sec.
    3.3).

    Published for ImageNet, and as here: 8192 words at each of the last two scales, δ 1/15 of the mean distance, κ = 8
    (temperature 0.125), τ rising from 0.99 to 1, MoCo v2's changes of colour, SGD with batch 256, learning rate 0.03,
    weight decay 1e-4, 200 epochs with 10 of warm-up. On CIFAR, which the authors do not report: 2048 words, batch 512.

    Different here:

    - A projector follows the features, and its output is normalized; the authors use features directly.
    - The teacher sees the two large views, augmented as the student's, and each is predicted from all other views.
      The authors' teacher sees the centre of the image at 224 pixels, their student two crops of 160 (8 to 60 % of the
      area) and five of 96.
    - Places at a map's border count, too.
    - A new word is the mean of 3 × 3 features around a random place if the map is that large, else of all.
    - The learning rate decays to 0, not to a thousandth.

    Args:
        encoder: Network from images (B, C, H, W) to features (B, `features`).
        features: Width of the encoder's output.
        norm: Normalization in the projector and the generators.
        seed: Seed of the places that new words come from.
        input_shape: Shape (C, H, W) of a view, to measure the widths of the encoder's blocks.
        hidden: Hidden units of the projector, and of the predictor if there is one.
        projection: Outputs of the projector, and of the predictor if there is one.
        prototypes: Words of each vocabulary.
        temperature: Temperature of the student's softmax.
        tau: Decay of the teacher's moving average at the start; it rises to 1.
        scales: Last blocks of the encoder that have a vocabulary.
        sharpness: Inverse of δ, as a share of the mean squared distance to the nearest word.

    Example:
        >>> method = hs.methods.OBoW(torch.nn.Flatten(), features=12, hidden=8, projection=4, prototypes=5)
        >>> views = (torch.rand(6, 3, 2, 2), torch.rand(6, 3, 2, 2))
        >>> sorted(method(hs.methods.Batch(views, torch.arange(6), None)).terms)
        ['obow']
    """

    recipes = {
        "default": {
            "small_crops": 4,
            "energy_layers": ("projector", "generators"),
            "optimizer": "sgd",
            "batch": 512,
            "lr": 0.03,
            "weight_decay": 1e-4,
        },
        "digits": {**SMALL_HEADS, "prototypes": 256, "small_crops": 0},
        "imagenet": {
            "small_crops": 5,
            "small_side": 0.43,
            "small_area": (0.08, 0.14),
            "epochs": 200,
            "batch": 256,
            "prototypes": 8192,
            "policy": "moco",
            "crop_min": 0.08,
        },
        "transformer": TRANSFORMER,
    }
    takes_small_crops = True
    updates: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        hidden: Count = 2048,
        projection: Count = 128,
        norm: Norm = "batch",
        prototypes: Several = 2048,
        temperature: Positive = 0.125,
        tau: Share = 0.99,
        seed: int = 0,
        scales: Annotated[int, Limits(least=1, most=16)] = 2,
        sharpness: Positive = 15.0,
        input_shape: tuple[int, int, int] | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = mlp(features, hidden, projection, norm)
        self.blocks = list(blocks_of(encoder))[-scales:]
        self.target = make_target(encoder)
        widths = [width_of(encoder.get_submodule(name)) for name in self.blocks] or [features]
        if input_shape is not None:
            self.target.eval()
            widths = self._widths(input_shape)
            self.target = make_target(encoder)
        self.generators = nn.ModuleList(skip_synchronization(mlp(width, hidden, projection, norm)) for width in widths)
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
            scores = [cosines(each, weights) for each in z]
            losses.append(swapped_prediction(bags, scores, self.temperature))
            vocabulary.add(maps[0][scale], self._chance(batch.sample))
        self.updates += 1
        return self.step("obow", torch.stack(losses).mean(), *z)

    def _chance(self, sample: Tensor) -> Tensor:
        return uniforms(1, sample, seed=self.seed, epoch=self.updates, stream=WORDS)[:, 0]

    def _widths(self, input_shape: tuple[int, int, int]) -> list[int]:
        """Return the widths of the teacher's maps. A block's last layer may have another one than its output."""
        like = next(self.target.parameters())
        try:
            return [places.shape[2] for places in self._maps(like.new_zeros(1, *input_shape))]
        except (RuntimeError, ValueError, AssertionError) as error:
            shape = " × ".join(map(str, input_shape))
            raise UserError(f"`encoder` does not accept {shape} images ({first_line(error)})") from None

    @torch.no_grad()
    def _maps(self, view: Tensor) -> list[Tensor]:
        """Return the teacher's features at each scale: the outputs of its blocks, or its output if it has none."""
        blocks = {name: self.target.get_submodule(name) for name in self.blocks}
        with heard(blocks, lambda x: to_positions(x.to(torch.float32, copy=True))) as found:
            output = self.target(view)
        return [found[name] for name in self.blocks] or [output[:, None].float()]

    # torch.compiler.disable does the same, but imports the compiler for everybody
    _maps._torchdynamo_disable = True  # type: ignore[attr-defined]

    def after_step(self, progress: float | Tensor) -> None:
        ema_update(self.target, self.encoder, rising(self.tau, progress))


class Vocabulary(nn.Module):
    """K words, the newest first, and the mean squared distance of features to the nearest one."""

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
        """Replace the oldest words by one of each image."""
        pooled = _pooled(places)
        chosen = (chance * pooled.shape[1]).long()
        new = pooled.gather(1, chosen[:, None, None].expand(-1, 1, pooled.shape[2]))[:, 0]
        self.words.copy_(torch.cat([gather(new), self.words])[: len(self.words)])


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """‖x‖² + ‖y‖² − 2xyᵀ, in single precision."""
    with without_autocast(x):
        return (x.square().sum(dim=1)[:, None] + y.square().sum(dim=1) - 2 * x @ y.T).clamp(min=0)


def _pooled(places: Tensor) -> Tensor:
    """Average 3 × 3 neighbours if the map is square and large enough, else all places."""
    side = round(places.shape[1] ** 0.5)
    if side < 3 or side * side != places.shape[1]:
        return places.mean(dim=1, keepdim=True)
    square = places.transpose(1, 2).unflatten(2, (side, side))
    return F.avg_pool2d(square, kernel_size=3, stride=1).flatten(2).transpose(1, 2)
