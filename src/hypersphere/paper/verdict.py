"""A claim and its verdict, by a rule. When it was fixed, and what came later, RESULTS.md says (`report.verdicts`).

An effect is a difference between cells, seed by seed; its interval the 95 % t-interval of the mean difference. The
claim is *reproduced* if the interval excludes 0 in the claimed direction, *not reproduced* if it excludes the published
effect (or, where the paper has no number, if it lies on the other side), *undecided* otherwise; with both, it is
reproduced. Where a claim says that something hardly matters, the bound is what "hardly" allows instead of 0: half a
point, or 5 % of the time; it is not reproduced if the interval lies beyond that.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hypersphere.paper.cells import AS_WRITTEN, Cell, Protocol
from hypersphere.paper.state import Estimate, Evidence, estimate, measured
from hypersphere.results import Result


class Claim(NamedTuple):
    """more − less is said to be above 0 (or, `direction` −1, below), or not to miss that by more than `slack`; with
    `beyond`, the same of (more − less) − (the difference of these two)."""

    sentence: str
    metric: str
    more: Cell
    less: Cell
    published: float | None  # the effect, where the paper has a number for it
    direction: int = 1
    slack: float = 0.0
    beyond: tuple[Cell, Cell] | None = None

    @property
    def bound(self) -> float:
        return 0.0 - self.direction * self.slack  # not −0

    @property
    def cells(self) -> tuple[Cell, ...]:
        return (self.more, self.less, *(self.beyond or ()))

    @property
    def test(self) -> str:
        further = "" if self.beyond is None else " − ({} − {})".format(*(cell.name for cell in self.beyond))
        sign = ">" if self.direction > 0 else "<"
        return f"{self.metric}: {self.more.name} − {self.less.name}{further} {sign} {self.bound:g}"


class Verdict(NamedTuple):
    word: str
    effect: Estimate | None
    diverged: int  # seeds that are not in the effect, since one of their runs has no end


def judge(claim: Claim, evidence: Evidence, protocol: Protocol = AS_WRITTEN) -> Verdict:
    by_cell = [evidence.of(cell, protocol) for cell in claim.cells]
    seeds = sorted(set.intersection(*map(set, by_cell)))
    runs = [[of_cell[seed] for of_cell in by_cell] for seed in seeds]
    effect = estimate([value for of_seed in runs if (value := _effect(claim.metric, of_seed)) is not None])
    lost = sum(any(run.diverged is not None for run in of_seed) for of_seed in runs)
    return Verdict(_word(claim, effect, 0 < lost == len(runs)), effect, lost)


def _effect(metric: str, runs: Sequence[Result]) -> float | None:
    """Of one seed: more − less, and from that the further difference."""
    values = [measured(run, metric) for run in runs]
    if metric.startswith("training time") and len({(r.about.get("commit"), r.about.get("device")) for r in runs}) > 1:
        return None  # of another version, or another device
    if any(value is None for value in values):
        return None
    return sum(sign * value for sign, value in zip((1, -1, -1, 1), values, strict=False) if value is not None)


def _word(claim: Claim, effect: Estimate | None, diverged: bool) -> str:
    if effect is None:
        return "diverged" if diverged else "not tested"
    if effect.half_width is None:
        return "undecided"
    low, high = effect.mean - effect.half_width, effect.mean + effect.half_width
    nearest, farthest = (low, high) if claim.direction > 0 else (-high, -low)  # in the claimed direction
    bound = claim.direction * claim.bound
    if nearest > bound:
        return "reproduced"
    excluded = farthest < bound if claim.published is None or claim.slack else not low <= claim.published <= high
    return "not reproduced" if excluded else "undecided"
