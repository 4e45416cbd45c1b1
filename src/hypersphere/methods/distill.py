"""Distillation (Hinton et al. 2015): predict the direction of a frozen teacher's features of the same view."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from hypersphere.distributed.collectives import all_mean
from hypersphere.errors import UserError
from hypersphere.losses import negative_cosine
from hypersphere.methods.base import Batch, Method, Step
from hypersphere.methods.recipes import SMALL_HEADS
from hypersphere.nn import deep_mlp, each_view, make_target
from hypersphere.nn.norm import Norm
from hypersphere.sphere.unit import to_full_precision
from hypersphere.util.console import notify
from hypersphere.util.option_fields import option


class Distill(Method):
    """Distillation on the sphere: learn where a frozen teacher puts each image.

    Student and teacher see the same view (Beyer et al. 2022), and the student's predictor turns its features into the
    direction of the teacher's. Directions are taken from the mean of the teacher's features over the batch: features
    after a ReLU all lie in one corner of the sphere, where their cosines say little.

    The teacher may be a run, a folder that `export` wrote, or a pretrained model of torchvision or timm. Without one it
    is the encoder as it starts: with random weights, that is the experiment that motivated BYOL (Grill et al. 2020).

    Different here: the teacher's features are the target, not its class probabilities, so no labels are needed.

    Args:
        encoder: Network from images (B, C, H, W) to features (B, `features`): the student.
        features: Width of the encoder's output.
        teacher: Network from the same images to features (B, `teacher_features`), or a function that returns it, which
            is called when the teacher is needed; its network is no part of `state_dict()`. None: a frozen copy of the
            encoder. In a run, a name or a folder.
        teacher_size: Side in pixels to which views are resized for the teacher. None: their own size. In a run only.
        teacher_features: Width of the teacher's features. None: `features`; in a run that of the teacher.
        hidden: Hidden units of the predictor.
        layers: Linear layers of the predictor.
        norm: Normalization in the predictor.

    Example:
        >>> teacher = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 5))
        >>> method = hs.methods.Distill(torch.nn.Flatten(), features=12, teacher=teacher, teacher_features=5)
        >>> views = (torch.rand(6, 3, 2, 2), torch.rand(6, 3, 2, 2))
        >>> sorted(method(hs.methods.Batch(views, torch.arange(6), None)).terms)
        ['distill']
    """

    takes_one_view = True

    @dataclass(frozen=True)
    class Options:  # declared, because a run takes the name of a teacher
        teacher: str | None = option(None)
        """Frozen network to learn from: the folder of a run, a folder that `export` wrote, or a pretrained model as
        torchvision/NAME or timm/NAME (None: the encoder as it starts)."""
        teacher_size: int | None = option(None, least=8, most=1024, used_if=lambda config: config.teacher)
        """Side in pixels to which views are resized for the teacher (None: they are not)."""
        teacher_features: int | None = option(None, least=1, used_if=lambda config: config.teacher)
        """Number of the teacher's features (None: it is looked up when the run starts)."""
        hidden: int = option(2048, least=1)
        """Hidden units of the predictor."""
        layers: int = option(2, least=1, most=64)
        """Linear layers of the predictor."""

    recipes = {"default": {"energy_layers": ("predictor",)}, "digits": {"hidden": SMALL_HEADS["hidden"]}}

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        teacher: nn.Module | Callable[[], nn.Module] | None = None,
        teacher_size: int | None = None,
        teacher_features: int | None = None,
        hidden: int = Options.hidden,
        layers: int = Options.layers,
        norm: Norm = "batch",
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.predictor = deep_mlp(features, hidden, teacher_features or features, layers, norm)
        self.load_teacher: Callable[[], nn.Module] | None = None
        self.loaded: list[nn.Module] = []  # a list, so that the teacher is no submodule
        if teacher is None or isinstance(teacher, nn.Module):
            self.teacher = make_target(encoder if teacher is None else teacher).eval()
        else:
            self.load_teacher = teacher

    def forward(self, batch: Batch) -> Step:
        predictions = each_view(nn.Sequential(self.encoder, self.predictor), batch.views)
        targets = self.targets(batch.views)
        losses = [negative_cosine(p, t) for p, t in zip(predictions, targets, strict=True)]
        return self.step("distill", torch.stack(losses).mean(), *predictions)

    @torch.no_grad()
    def targets(self, views: Sequence[Tensor]) -> list[Tensor]:
        """Return the teacher's features of each view, minus their mean over all of them."""
        teacher = self.ready_teacher(views[0].device)
        features = [to_full_precision(teacher(view)) for view in views]
        mean = all_mean(torch.cat(features).mean(dim=0))
        return [one - mean for one in features]

    def ready_teacher(self, device: torch.device) -> nn.Module:
        """Return the teacher, which is loaded when it is first needed."""
        if self.load_teacher is None:
            return self.teacher
        if not self.loaded:
            self.loaded.append(self.load_teacher().requires_grad_(False).eval())
        return self.loaded[0].to(device)

    def check(self, images: int) -> None:
        """Load the teacher, and raise a `UserError` if its features are not as wide as the predictor's output."""
        if self.load_teacher is None:
            notify("the teacher is the encoder as it starts: pass `teacher` to learn from another")
        teacher = self.ready_teacher(next(self.encoder.parameters()).device)
        width = getattr(teacher, "num_features", None)
        outputs = [layer for layer in self.predictor if isinstance(layer, nn.Linear)][-1].out_features
        if width not in (None, outputs):
            raise UserError(f"the teacher has {width} features, but `teacher_features` is {outputs}: leave it out")

    def train(self, mode: bool = True) -> Self:
        """Set the training mode of the student. The teacher stays in evaluation mode."""
        super().train(mode)
        if self.load_teacher is None:
            self.teacher.eval()
        return self
