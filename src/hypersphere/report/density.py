"""Where features lie on the circle S¹, drawn as in fig:uni: densities in the plane above those of the angle."""

import math

import torch
from torch import Tensor

from hypersphere.diagnostics import angle_counts, plane_density, von_mises_density
from hypersphere.report.chart import Scale, axes
from hypersphere.report.markup import Markup, element, joined, number
from hypersphere.report.sheet import png_uri

INK = (42, 127, 192)  # seen on white and on black
PLANE = {"x": 62, "y": 8, "width": 180, "height": 180}
PI_TICKS = ((-math.pi, "−π"), (0.0, "0"), (math.pi, "π"))


def on_circle(features: Tensor) -> tuple[Tensor, str]:
    """Unit features as points of the plane, N × 2, and what these are."""
    if features.shape[1] == 2:
        return features, "the features themselves"
    features = features.double()
    directions = torch.linalg.svd(features, full_matrices=False).Vh[:2]
    points = features @ directions.T
    points = points * torch.where(points.mean(0) < 0, -1.0, 1.0)  # the sign is free: the way most of them point
    kept = float(points.square().sum() / features.square().sum())
    return points, f"projected onto the first two principal directions, which hold {kept:.0%} of the squared length"


def angle_density(points: Tensor) -> Tensor:
    return von_mises_density(angle_counts(points), _around())


def _around() -> Tensor:
    return torch.linspace(-math.pi, math.pi, 181)


def circle(label: str, points: Tensor, meaning: str, highest: float) -> Markup:
    """`highest` of the angle densities that stand side by side: they share a scale."""
    density = angle_density(points)
    drawing = element(
        "svg",
        _plane(plane_density(angle_counts(points), torch.linspace(-1.5, 1.5, 91))),
        _angles(density, highest),
        viewBox="0 0 270 340",
        role="img",
        aria_label=f"{label}: densities on the circle; that of the angle is {density.max():.2f} where it is highest",
    )
    return element("figure", drawing, element("figcaption", element("strong", label), f": {meaning}"), class_="circle")


def _plane(density: Tensor) -> Markup:
    from PIL import Image

    # One colour, more or less transparent; a picture's first row is its top.
    strength = (255 * density / density.max()).round().to(torch.uint8).flip(0)[:, :, None]
    shades = torch.cat((torch.tensor(INK, dtype=torch.uint8).expand(*strength.shape[:2], 3), strength), dim=2)
    x, y = Scale(-1.5, 1.5, 62, 242), Scale(-1.5, 1.5, 188, 8)
    return joined(
        element("image", href=png_uri(Image.fromarray(shades.contiguous().numpy())), **PLANE),
        element("rect", **PLANE, class_="frame"),
        *(element("text", number(v, 0), x=x(v), y=203, class_="tick", text_anchor="middle") for v in (-1, 0, 1)),
        *(element("text", number(v, 0), x=56, y=y(v) + 4, class_="tick", text_anchor="end") for v in (-1, 0, 1)),
    )


def _angles(density: Tensor, highest: float) -> Markup:
    x, y = Scale(-math.pi, math.pi, 44, 260, marks=PI_TICKS), Scale(0, 1.05 * highest, 300, 232, about=3)
    outline = " ".join(f"{x(a):g},{y(d):g}" for a, d in zip(_around().tolist(), density.tolist(), strict=True))
    even = y(1 / (2 * math.pi))
    return joined(
        element("text", "density per rad", x=x.begin, y=224, class_="unit"),
        axes(x, y, "angle, rad"),
        element("polygon", points=f"{x.begin},{y.begin} {outline} {x.end},{y.begin}", class_="area"),
        element("polyline", points=outline, class_="outline"),
        element("line", x1=x.begin, x2=x.end, y1=even, y2=even, class_="even"),
    )
