"""Features on the circle S¹ as in fig:uni: their density in the plane, and below it that of their angle."""

import math

import torch
from markupsafe import Markup
from torch import Tensor

from hypersphere.diagnostics import angle_counts, plane_density, von_mises_density
from hypersphere.diagnostics.findings import on_the_circle
from hypersphere.report.chart import Scale, polyline
from hypersphere.report.contact_sheet import png_uri
from hypersphere.report.templating import render

INK = (42, 127, 192)  # visible on white and on black
PI_TICKS = ((-math.pi, "−π"), (0.0, "0"), (math.pi, "π"))
ANGLES = torch.linspace(-math.pi, math.pi, 181)


def on_circle(features: Tensor) -> tuple[Tensor, str]:
    """Features as points of the plane.

    Args:
        features: Unit features of shape (N, D).

    Returns:
        Points of shape (N, 2), and a description of them.
    """
    if features.shape[1] == 2:
        return features, "the features themselves"
    points = on_the_circle(features)
    points = points * torch.where(points.mean(0) < 0, -1.0, 1.0)  # the sign is arbitrary: make most points positive
    kept = float(points.square().sum() / features.square().sum())
    return points, f"projected onto the first two principal directions, which hold {kept:.0%} of the squared length"


def angle_density(points: Tensor) -> Tensor:
    """Density of the angles of points of shape (N, 2), at `ANGLES`."""
    return von_mises_density(angle_counts(points), ANGLES)


def circle(label: str, points: Tensor, meaning: str, highest: float) -> Markup:
    """The densities of one run.

    Args:
        label: Name of the run.
        points: Points of shape (N, 2).
        meaning: Description of the points.
        highest: Largest angle density of all runs, which share a scale.
    """
    density = angle_density(points)
    x, y = Scale(-math.pi, math.pi, 44, 260, marks=PI_TICKS), Scale(0, 1.05 * highest, 300, 232, about=3)
    return render(
        "circle.html",
        label=label,
        meaning=meaning,
        picture=_plane(points),
        peak=float(density.max()),
        x=x,
        y=y,
        outline=polyline([*zip(ANGLES.tolist(), density.tolist(), strict=True)], x, y),
        uniform=1 / (2 * math.pi),
    )


def _plane(points: Tensor) -> str:
    """A picture of the density in the plane: one colour, more or less transparent."""
    from PIL import Image

    density = plane_density(angle_counts(points), torch.linspace(-1.5, 1.5, 91))
    strength = (255 * density / density.max()).round().to(torch.uint8).flip(0)[:, :, None]  # the first row is the top
    shades = torch.cat((torch.tensor(INK, dtype=torch.uint8).expand(*strength.shape[:2], 3), strength), dim=2)
    return png_uri(Image.fromarray(shades.contiguous().numpy()))
