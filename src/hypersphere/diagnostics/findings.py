"""Findings about points on the sphere: a measure, a value to compare it with, and a sentence."""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from hypersphere.diagnostics.circle import angle_counts, bin_angles, von_mises_density
from hypersphere.diagnostics.collapse import RANK, VARIES
from hypersphere.diagnostics.point_cloud import Cloud, without_duplicates
from hypersphere.sphere import alignment, effective_rank, hyperspherical_energy, rankme, uniformity, unit
from hypersphere.sphere.evenness import even_energy, even_uniformity
from hypersphere.util.statistics import Estimate

Health = Literal["good", "weak", "bad", ""]  # "": no judgement
BARS = "▁▂▃▄▅▆▇█"
FEW_ROWS = 100  # below, measures say little about the features of other images
FEW = "rows"  # name of the finding that there are fewer


class Finding(NamedTuple):
    """One measure of a representation and what it means.

    Attributes:
        name: Name of the measure.
        measured: Its value, with an interval if it comes from a sample.
        against: Values to compare it with, as text.
        sentence: What it means.
        health: "good", "weak" or "bad"; "" if the measure allows no judgement.
    """

    name: str
    measured: Estimate
    against: str
    sentence: str
    health: Health = ""

    @property
    def value(self) -> float:
        return self.measured.mean

    def to_json(self) -> dict[str, object]:
        number = {"value": self.value, "half_width": self.measured.half_width}
        return {**number, "against": self.against, "sentence": self.sentence, "health": self.health}


def findings_of(cloud: Cloud) -> list[Finding]:
    """All findings about a cloud of points. Only about its zero rows if fewer than two points have a direction."""
    found = _invalid_rows(cloud)
    if len(cloud.sample) >= 2:
        ranks = {"effective rank": effective_rank, "RankMe": rankme}
        found += [_uniformity(cloud), _energy(cloud)]
        found += [_rank(name, float(rank(cloud.sample)), cloud) for name, rank in ranks.items()]
        found += [_spread(cloud), _circle(cloud)]
        found += _few_rows(cloud.rows - cloud.zeros)
    return found


def _few_rows(rows: int) -> list[Finding]:
    sentence = "too few rows to judge features by: all measures are uncertain"
    return [Finding(FEW, Estimate(rows), f"at least {FEW_ROWS}", sentence)] if rows < FEW_ROWS else []


def alignment_finding(one: Tensor, other: Tensor) -> Finding:
    """Distance between two views of the same images (eq:align), compared with views of different images.

    Args:
        one: Features of the first views, of shape (N, D).
        other: Features of the second views of the same images, of shape (N, D).
    """
    found, unrelated = float(alignment(one, other)), _distance_of_different(one, other)
    if unrelated <= 1e-6:  # the ratio would be that of rounding errors
        share, sentence = 1.0, "views of different images are as near to each other as views of one image"
    else:
        share = found / unrelated
        sentence = f"views of an image are {100 * share:.0f} % as far apart as those of different images"
    health: Health = "good" if share < 0.5 else "weak" if share < 0.9 else "bad"
    return Finding("alignment", Estimate(found), f"0 alike, {unrelated:.3g} unrelated", sentence, health)


def _distance_of_different(one: Tensor, other: Tensor) -> float:
    """Mean of ‖x̂ᵢ − ŷⱼ‖² over all i ≠ j, from Σx̂ᵢ, Σŷⱼ and Σx̂ᵢ·ŷᵢ."""
    x, y = unit(one.double()), unit(other.double())
    n = len(x)
    products = x.sum(0) @ y.sum(0) - (x * y).sum()
    return float((x.square().sum() + y.square().sum()) / n - 2 * products / (n * (n - 1)))


def _invalid_rows(cloud: Cloud) -> list[Finding]:
    """Rows of zeros, and rows that are equal to another one."""
    found = []
    if cloud.zeros:
        sentence = "rows of zeros have no direction; the other findings are about the other rows"
        if cloud.rows - cloud.zeros < 2:
            sentence = "collapsed: fewer than two rows have a direction"
        found.append(Finding("zero rows", Estimate(cloud.zeros), f"of {cloud.rows:,}", sentence, "bad"))
    if duplicates := len(cloud.sample) - len(torch.unique(cloud.sample, dim=0)):
        percent = 100 * duplicates / len(cloud.sample)
        sentence = f"{percent:.1f} % of the rows are copies of another: duplicate inputs, or collapsed features"
        found.append(Finding("copies", Estimate(percent), "0 %", sentence, "bad" if percent > 50 else "weak"))
    return found


def _uniformity(cloud: Cloud) -> Finding:
    measured, even = cloud.measure(uniformity), even_uniformity(cloud.dimensions)
    share = measured.mean / even  # 0: collapsed, 1: even
    health: Health = "bad" if share < 0.05 else "weak" if share < 0.25 else "good"
    sentence = {
        "bad": "very crowded: features point nearly the same way",
        "weak": "crowded: features keep to a small part of the sphere",
        "good": f"spread over the sphere: {100 * share:.0f} % of the way from one point to an even spread",
    }[health]
    if float(_spread_by_dimension(cloud).mean()) < VARIES:
        sentence, health = "collapsed: all features point the same way", "bad"
    return Finding("uniformity (G2)", measured, f"{even:.3f} even, 0 collapsed", sentence, health)


def _energy(cloud: Cloud) -> Finding:
    measured = cloud.measure(lambda x: hyperspherical_energy(without_duplicates(x), 2, "geodesic"))
    even = even_energy(cloud.dimensions)
    if math.isinf(even):
        sentence = "an even spread in so few dimensions has no finite energy"
        return Finding("energy (a2)", measured, "no finite one", sentence)
    times = measured.mean / even
    health: Health = "good" if times < 10 else "weak" if times <= 100 else "bad"
    sentence = f"{times:.3g} times that of an even spread" + ": many features nearly coincide" * (health == "bad")
    return Finding("energy (a2)", measured, f"{even:.4f} even", sentence, health)


def _rank(name: str, rank: float, cloud: Cloud) -> Finding:
    most = min(len(cloud.sample), cloud.dimensions)
    share = f"{100 * rank / most:.0f} % of what {most} dimensions could hold"
    sentence, health = share, "good"
    if rank < RANK:
        sentence, health = "dimensional collapse: nearly all lies in one direction", "bad"
    elif rank < RANK + 0.01 * most:
        sentence, health = "very narrow: nearly all lies in a few directions", "bad"
    elif rank / most < 0.15:
        sentence, health = f"narrow: {share}", "weak"
    return Finding(name, Estimate(rank), f"1 … {most}", sentence, health)  # type: ignore[arg-type]


def _spread_by_dimension(cloud: Cloud) -> Tensor:
    """√D times the standard deviation of each coordinate of the unit vectors: 1 if the spread is even."""
    return cloud.std * math.sqrt(cloud.dimensions)


def _spread(cloud: Cloud) -> Finding:
    spread = _spread_by_dimension(cloud)
    constant, mean = int((spread < 0.01).sum()), float(spread.mean())
    health: Health = "good" if mean >= 0.3 and constant < cloud.dimensions / 10 else "weak"
    sentence = f"least {float(spread.min()):.2g}, most {float(spread.max()):.2g}"
    if mean < 0.1:
        sentence, health = "features hardly vary", "bad"
    elif not constant:
        sentence = f"every dimension varies: {sentence}"
    sentence += f"; {constant} of {cloud.dimensions} dimensions are constant" if constant else ""
    return Finding("spread by dimension", Estimate(mean), "1 even, 0 collapsed", sentence, health)


def on_the_circle(x: Tensor) -> Tensor:
    """Projection of points onto their two principal directions, not centred.

    Args:
        x: Points of shape (N, D); rows are normalized to unit length.

    Returns:
        Coordinates of shape (N, 2); the normalized points themselves if D is 2.
    """
    points = unit(x)
    if x.shape[1] == 2:
        return points
    wide = points.double()
    if len(x) < x.shape[1]:  # the smaller Gram matrix: X = UΣVᵀ, hence XV = UΣ
        squares, left = torch.linalg.eigh(wide @ wide.T)
        return (left * squares.clamp(min=0).sqrt())[:, -2:].flip(1).to(points.dtype)
    directions = torch.linalg.eigh(wide.T @ wide).eigenvectors
    return points @ directions[:, -2:].flip(1).to(points.dtype)


def _circle(cloud: Cloud) -> Finding:
    density = von_mises_density(angle_counts(on_the_circle(cloud.sample)), bin_angles()) * 2 * math.pi
    peak = float(density.max())
    sectors = density.unflatten(0, (24, -1)).amax(dim=1)
    bars = "".join(BARS[min(7, int(8 * share))] for share in (sectors / peak).tolist())
    projected = "" if cloud.dimensions == 2 else ", projected onto two principal directions"
    sentence = f"{bars} from −180° to 180°{projected}; at its densest {peak:.1f} times an even share"
    return Finding("density on the circle", Estimate(peak), "1 even", sentence)
