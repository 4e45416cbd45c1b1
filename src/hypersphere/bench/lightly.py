"""The same BYOL update with lightly, as its users write it: PIL transforms in worker processes."""

import copy
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hypersphere.bench.timing import now, seconds
from hypersphere.config import Config
from hypersphere.data import Images
from hypersphere.errors import UserError
from hypersphere.views import Augmentation


def available() -> None:
    """Check that lightly is installed.

    Raises:
        UserError: If it is not.
    """
    try:
        import lightly.loss
        import lightly.transforms.byol_transform  # noqa: F401
    except ImportError as error:
        raise UserError(f"`peer` lightly is not installed ({error}): pip install lightly") from None


class Pictures(torch.utils.data.Dataset):
    """Images from memory or from files, as PIL images with a transform."""

    def __init__(self, images: Images | Sequence[Path | str], transform: Any) -> None:
        self.images: Any = images
        if isinstance(images, Images):
            self.images = images.pixels.cpu().permute(0, 2, 3, 1).numpy()
        self.transform = transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        image = self.images[index]
        in_file = isinstance(image, str | Path)
        return self.transform(Image.open(image).convert("RGB") if in_file else Image.fromarray(image))


def transform_of(how: Augmentation, size: int) -> Any:
    """lightly's transform, with the parameters of our augmentation."""
    from lightly.transforms import byol_transform

    options = {
        "input_size": size,
        "cj_prob": how.jitter,
        "cj_strength": 1.0,
        "cj_bright": how.brightness,
        "cj_contrast": how.contrast,
        "cj_sat": how.saturation,
        "cj_hue": how.hue,
        "min_scale": how.crop[0],
        "random_gray_scale": how.grey,
        "gaussian_blur": how.blur,
        "solarization_prob": how.solarize,
        "hf_prob": how.flip,
    }
    one, two = byol_transform.BYOLView1Transform(**options), byol_transform.BYOLView2Transform(**options)
    return byol_transform.BYOLTransform(one, two)


class Model(nn.Module):
    """BYOL from lightly's modules."""

    def __init__(self, config: Config, stem: str) -> None:
        from lightly.models.modules import BYOLPredictionHead, BYOLProjectionHead
        from lightly.models.utils import deactivate_requires_grad
        from torchvision.models import get_model

        super().__init__()
        self.backbone = get_model(config.encoder.removeprefix("torchvision/"), weights=None)
        features = self.backbone.fc.in_features
        self.backbone.fc = nn.Identity()
        if stem == "cifar":
            self.backbone.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
            self.backbone.maxpool = nn.Identity()
        hidden, projection = vars(config)["hidden"], vars(config)["projection"]
        self.projector = BYOLProjectionHead(features, hidden, projection)
        self.predictor = BYOLPredictionHead(projection, hidden, projection)
        self.slow = copy.deepcopy(nn.Sequential(self.backbone, self.projector))
        deactivate_requires_grad(self.slow)

    def loss(self, views: list[torch.Tensor], criterion: Any) -> torch.Tensor:
        """BYOL's symmetric loss of two views."""
        fast = [self.predictor(self.projector(self.backbone(view))) for view in views]
        with torch.no_grad():
            slow = [self.slow(view) for view in views]
        return 0.5 * (criterion(fast[0], slow[1]) + criterion(fast[1], slow[0]))


def images_per_second(
    config: Config,
    images: Images | Sequence[Path | str],
    how: Augmentation,
    size: int,
    device: torch.device,
    *,
    fast: bool = False,
    updates: int = 48,
    warm_up: int = 10,
) -> float:
    """Images per second of training, with the loading of images.

    Args:
        config: Config of the run.
        images: Training images, or their files.
        how: The augmentation.
        size: Side of the views in pixels.
        device: Device that trains.
        fast: Whether to use bfloat16, channels-last and `torch.compile`, which lightly leaves to its users.
        updates: Number of updates to time.
        warm_up: Number of updates before.
    """
    from lightly.loss import NegativeCosineSimilarity
    from lightly.models.utils import update_momentum
    from lightly.utils.lars import LARS

    model = Model(config, config.stem).to(device).train()
    if fast:
        model = model.to(memory_format=torch.channels_last)
    optimizer = LARS([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9, weight_decay=1e-6)
    criterion = NegativeCosineSimilarity()
    loss_of = torch.compile(model.loss) if fast else model.loss
    loader = torch.utils.data.DataLoader(
        Pictures(images, transform_of(how, size)),
        batch_size=config.batch,
        shuffle=True,
        drop_last=True,
        num_workers=max(1, (os.cpu_count() or 1) - 2),  # as ours: two cores for the training process
        persistent_workers=True,
        pin_memory=device.type == "cuda",
    )
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    began = 0.0
    for step, views in enumerate(itertools.islice(batches, warm_up + updates)):
        if step == warm_up:
            began = now(device)
        memory = torch.channels_last if fast else torch.contiguous_format
        views = [view.to(device, memory_format=memory, non_blocking=True) for view in views]
        update_momentum(nn.Sequential(model.backbone, model.projector), model.slow, m=0.99)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=fast):
            loss = loss_of(views, criterion)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return updates * config.batch / (now(device) - began)


def views_per_second(images: Images, how: Augmentation, size: int, count: int = 300) -> float:
    """Images per second for which one core makes two views."""
    pictures = Pictures(images, transform_of(how, size))
    pictures[0]
    indices = itertools.cycle(range(len(pictures)))
    return count / seconds(lambda: pictures[next(indices)], torch.device("cpu"), count)
