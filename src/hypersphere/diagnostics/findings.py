"""What is seen of points on the sphere: each a number, what to compare it with, and a sentence."""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from hypersphere.diagnostics.circle import angle_counts, bin_angles, von_mises_density
from hypersphere.diagnostics.cloud import Cloud, Measured, distinct
from hypersphere.diagnostics.collapse import RANK, VARIES
from hypersphere.diagnostics.even import even_energy, even_uniformity
from hypersphere.sphere import alignment, effective_rank, hyperspherical_energy, rankme, uniformity, unit

Health = Literal["good", "weak", "bad", ""]  # "": no judgement
BARS = "▁▂▃▄▅▆▇█"


class Finding(NamedTuple):
    name: str
    measured: Measured
    against: str  # what it is compared with, in words
    sentence: str
    health: Health = ""

    def to_json(self) -> dict[str, object]:
        number = {"value": self.measured.value, "half_width": self.measured.half_width}
        return {**number, "against": self.against, "sentence": self.sentence, "health": self.health}


def findings_of(cloud: Cloud) -> list[Finding]:
    if len(cloud.sample) < 2:
        return _rows(cloud)
    return [
        *_rows(cloud),
        _uniformity(cloud),
        _energy(cloud),
        _rank(cloud),
        _rank_me(cloud),
        _spread(cloud),
        _circle(cloud),
    ]


def aligned(one: Tensor, other: Tensor) -> Finding:
    """Of two views of the same images (eq:align), beside views of different images."""
    found, unrelated = float(alignment(one, other)), _apart(one, other)
    share = found / unrelated if unrelated > 1e-6 else 1.0  # below, it is rounding that is compared
    sentence = f"views of an image are {100 * share:.0f} % as far apart as those of different images"
    if unrelated <= 1e-6:
        sentence = "views of different images are as near to each other as those of one"
    health: Health = "good" if share < 0.5 else "weak" if share < 0.9 else "bad"
    return Finding("alignment", Measured(found), f"0 alike, {unrelated:.3g} unrelated", sentence, health)


def _apart(one: Tensor, other: Tensor) -> float:
    """Mean of ‖x̂ᵢ − ŷⱼ‖² over all i ≠ j, in any order of the images: from Σx̂ᵢ, Σŷⱼ and Σx̂ᵢ·ŷᵢ."""
    x, y = unit(one.double()), unit(other.double())
    n = len(x)
    products = x.sum(0) @ y.sum(0) - (x * y).sum()
    return float((x.square().sum() + y.square().sum()) / n - 2 * products / (n * (n - 1)))


def _rows(cloud: Cloud) -> list[Finding]:
    found = []
    if cloud.zeros:
        sentence = "rows of zeros have no direction; what follows is of the others"
        if cloud.rows - cloud.zeros < 2:
            sentence = "collapsed: hardly a row has a direction"
        found.append(Finding("zero rows", Measured(cloud.zeros), f"of {cloud.rows:,}", sentence, "bad"))
    same = len(cloud.sample) - len(torch.unique(cloud.sample, dim=0))
    if same and len(cloud.sample):
        share = same / len(cloud.sample)
        sentence = "of the rows are copies of another: duplicate inputs, or features that collapsed"
        health: Health = "bad" if share > 0.5 else "weak"
        found.append(Finding("copies", Measured(100 * share), "0 %", f"{100 * share:.1f} % {sentence}", health))
    return found


def _uniformity(cloud: Cloud) -> Finding:
    """A collapsed cloud has 0, an even one the least."""
    measured, even = cloud.measure(uniformity), even_uniformity(cloud.dimensions)
    share = measured.value / even
    if float(_spreads(cloud).mean()) < VARIES:
        sentence, health = "collapsed: all features point the same way", "bad"
    elif share < 0.05:
        sentence, health = "very crowded: features point nearly the same way", "bad"
    elif share < 0.25:
        sentence, health = "crowded: features keep to a small part of the sphere", "weak"
    else:
        sentence, health = (
            f"spread over the sphere: {100 * share:.0f} % of the way from one point to an even spread",
            "good",
        )
    return Finding("uniformity (G2)", measured, f"{even:.3f} even, 0 collapsed", sentence, health)  # type: ignore[arg-type]


def _energy(cloud: Cloud) -> Finding:
    measured = cloud.measure(lambda x: hyperspherical_energy(distinct(x), 2, "geodesic"))
    even = even_energy(cloud.dimensions)
    if math.isinf(even):
        return Finding(
            "energy (a2)", measured, "no finite one", "of so few dimensions an even spread has no finite energy"
        )
    times = measured.value / even
    sentence = f"{times:.3g} times that of an even spread"
    if times > 100:
        return Finding("energy (a2)", measured, f"{even:.4f} even", f"{sentence}: many features nearly coincide", "bad")
    return Finding("energy (a2)", measured, f"{even:.4f} even", sentence, "good" if times < 10 else "weak")


def _rank(cloud: Cloud) -> Finding:
    rank = float(effective_rank(cloud.sample))
    return _of_dimensions("effective rank", rank, cloud)


def _of_dimensions(name: str, rank: float, cloud: Cloud) -> Finding:
    most = min(len(cloud.sample), cloud.dimensions)
    share = rank / most
    if rank < RANK:
        sentence, health = "dimensional collapse: nearly all lies in one direction", "bad"
    elif rank < RANK + 0.01 * most:
        sentence, health = "very narrow: nearly all lies in a few directions", "bad"
    elif share < 0.15:
        sentence, health = f"narrow: {100 * share:.0f} % of what {most} dimensions could hold", "weak"
    else:
        sentence, health = f"{100 * share:.0f} % of what {most} dimensions could hold", "good"
    return Finding(name, Measured(rank), f"1 … {most}", sentence, health)  # type: ignore[arg-type]


def _rank_me(cloud: Cloud) -> Finding:
    return _of_dimensions("RankMe", float(rankme(cloud.sample)), cloud)


def _spreads(cloud: Cloud) -> Tensor:
    """√D times the standard deviation of each coordinate of the unit vectors: 1 of an even spread."""
    return cloud.std * math.sqrt(cloud.dimensions)


def _spread(cloud: Cloud) -> Finding:
    spread = _spreads(cloud)
    dead, mean = int((spread < 0.01).sum()), float(spread.mean())
    told = f"; {dead} of {cloud.dimensions} dimensions are constant" if dead else ""
    if mean < 0.1:
        return Finding(
            "spread by dimension", Measured(mean), "1 even, 0 collapsed", f"features hardly vary{told}", "bad"
        )
    health: Health = "good" if mean >= 0.3 and dead < cloud.dimensions / 10 else "weak"
    varying = (
        f"{'' if dead else 'every dimension varies: '}least {float(spread.min()):.2g}, most {float(spread.max()):.2g}"
    )
    return Finding("spread by dimension", Measured(mean), "1 even, 0 collapsed", varying + told, health)


def on_the_circle(x: Tensor) -> Tensor:
    """Points of more dimensions as seen along their two principal directions, not centred."""
    points = unit(x)
    if x.shape[1] == 2:
        return points
    wide = points.double()
    if len(x) < x.shape[1]:  # the products of points are fewer: X = UΣVᵀ, hence XV = UΣ
        squares, left = torch.linalg.eigh(wide @ wide.T)
        return (left * squares.clamp(min=0).sqrt())[:, -2:].flip(1).to(points.dtype)
    directions = torch.linalg.eigh(wide.T @ wide).eigenvectors
    return points @ directions[:, -2:].flip(1).to(points.dtype)


def _circle(cloud: Cloud) -> Finding:
    density = von_mises_density(angle_counts(on_the_circle(cloud.sample)), bin_angles()) * 2 * math.pi
    peak = float(density.max())
    sectors = density.unflatten(0, (24, -1)).amax(dim=1)
    bars = "".join(BARS[min(7, int(8 * share))] for share in (sectors / peak).tolist())
    where = "" if cloud.dimensions == 2 else ", seen along two principal directions"
    sentence = f"{bars} from −180° to 180°{where}; where it is densest, {peak:.1f} times an even share"
    return Finding("density on the circle", Measured(peak), "1 even", sentence)
