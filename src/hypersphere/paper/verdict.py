"""The rule that judges claims, version 2. RESULTS.md has version 1 and why it was replaced.

1. The effect of a claim is a combination of cell means (most often a difference) over all seeds that have run; seeds of
   different cells are not paired. A seed that diverged counts as the worst result.
2. Its standard error comes from one variance, pooled over all cells of the protocol, dataset, encoder, normalization
   and optimizer. Bartlett's test decides which cells share it (`estimates.pooled_spread`); cells with a diverged or
   collapsed seed do not. If the error of the claim's own cells (Welch's) is larger, it is used instead. If one of its
   cells does not share the variance, or if times are compared, Welch's error is used with its own degrees of freedom.
3. Claims of one family are judged together: two-sided intervals that hold for all of them at once with 95 %, by Dunnett
   if they share a control, else by Bonferroni. The families are those of `claims.py`, whether or not all have run.
4. Each cell of the claim needs two seeds for an interval. By the family's, the effect is
   - *reproduced* if it lies on the claimed side of 0 (or of the bound, if something is said to hardly matter);
   - *smaller than published* if it does so, but the published effect is larger by more than both errors explain;
   - *opposite* if it lies on the other side.
   Otherwise there is *no effect* if the claim's own 95 % interval lies inside ± 0.5 points (a main effect of the
   factorial: ± 0.3) and does not contain the published value.
5. Everything else is *undecided*, with the smallest effect that would have been found with 80 % probability.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Literal, NamedTuple, get_args

from hypersphere.config import Config
from hypersphere.paper.catalogue import every_cell
from hypersphere.paper.cells import AS_WRITTEN, Cell, Protocol
from hypersphere.paper.claim import Claim
from hypersphere.paper.claims import CLAIMS
from hypersphere.paper.evidence import Evidence, measured, worst
from hypersphere.util.estimates import Effect, Spread, combine, detectable, pooled_spread

Word = Literal[
    "reproduced", "smaller than published", "no effect", "opposite", "undecided", "not tested"
]  # in the order of the page
WORDS: tuple[Word, ...] = get_args(Word)
MARGINS = {"top-1": 0.5, "top-5": 0.5, "k-NN": 0.5, "linear-cached": 0.5}  # points
TIME = "training time, %"
COLLAPSED = {"uniformity": 0.05, "effective rank": 0.1}  # a run this close to the worst has collapsed; others: 1


class Verdict(NamedTuple):
    """What the results say about a claim.

    Attributes:
        word: The verdict.
        effect: The measured effect; None if it was not tested.
        half_width: Half-width of the interval that holds for the family.
        detectable: Smallest effect that would have been found with 80 % probability.
        against_published: −1 if the effect is below the published one by more than both errors, 1 if above.
        diverged: Number of seeds that diverged.
    """

    word: Word
    effect: Effect | None = None
    half_width: float | None = None
    detectable: float | None = None
    against_published: int = 0
    diverged: int = 0

    @property
    def description(self) -> str:
        """The verdict with its details."""
        seen = f", could have seen {self.detectable:.2f}" if self.detectable is not None else ""
        side = {-1: "below the published effect", 1: "above the published effect"}
        parts = [self.word + seen * (self.word == "undecided")]
        if self.against_published and self.word != "smaller than published":
            parts.append(side[self.against_published])
        parts += [f"{self.diverged} diverged"] * (self.diverged > 0)
        return "; ".join(parts)


class Judge:
    """Judges claims by the rule above.

    Args:
        evidence: All results.
        cells: Cells whose variance may be pooled; None for all.
        claims: All claims, which make up the families.
    """

    def __init__(self, evidence: Evidence, cells: Sequence[Cell] | None = None, claims: Sequence[Claim] = CLAIMS):
        self.evidence, self.claims = evidence, claims
        self.cells = [*every_cell()] if cells is None else cells
        self._pool = cache(self._find_pool)
        self._family = cache(self._find_family)

    def __call__(self, claim: Claim, protocol: Protocol = AS_WRITTEN) -> Verdict:
        """The verdict on a claim, by the runs of a protocol."""
        effect = self.effect(claim, protocol)
        if effect is None:
            return Verdict("not tested")
        diverged = sum(len(self.evidence.diverged(cell, protocol)) for cell in claim.cells)
        if not effect.spread:
            return Verdict("undecided", effect, diverged=diverged)
        size, control = self._family(claim.family, claim.metric) if claim.family else (1, None)
        critical = effect.critical(size, _ratio(claim, effect, control))
        word, against = decide(claim, effect, critical * effect.error)
        smallest = detectable(effect, critical)
        return Verdict(word, effect, critical * effect.error, smallest, against, diverged)

    def effect(self, claim: Claim, protocol: Protocol) -> Effect | None:
        """The effect of a claim; None if one of its cells has not run."""
        if not is_of(claim.cells, protocol):
            return None
        values = self._values(claim, protocol)
        if not all(values):
            return None
        weights = [term.weight for term in claim.terms]
        return combine(values, weights, None if claim.metric == TIME else self._spread(claim, protocol))

    def _values(self, claim: Claim, protocol: Protocol) -> list[list[float]]:
        """Values of each cell, one per seed."""
        if claim.metric != TIME:
            return [[*self.evidence.scores(cell, claim.metric, protocol).values()] for cell in claim.cells]
        runs = [self.evidence.of(cell, protocol).values() for cell in claim.cells]
        made: defaultdict[tuple, list[list[float]]] = defaultdict(lambda: [[] for _ in runs])
        for place, of_cell in enumerate(runs):  # only times of the same code on the same device are comparable
            for run in of_cell:
                if (value := measured(run, TIME)) is not None:
                    made[run.about.get("commit"), run.about.get("device")][place].append(value)
        return max(made.values(), key=lambda values: (min(map(len, values)), sum(map(len, values))), default=[[]])

    def _spread(self, claim: Claim, protocol: Protocol) -> Spread | None:
        """The variance that all of its cells share, if they do."""
        setting = _setting(protocol.config(claim.cells[0], 0))
        spread, shared_by = self._pool(protocol, claim.metric, setting)
        return spread if shared_by >= {cell.name for cell in claim.cells} else None

    def _find_pool(self, protocol: Protocol, metric: str, setting: tuple) -> tuple[Spread | None, set[str]]:
        alike = [cell for cell in self.cells if cell.obstacle is None and is_of([cell], protocol)]
        alike = [cell for cell in alike if _setting(protocol.config(cell, 0)) == setting]
        values = {cell.name: self.evidence.scores(cell, metric, protocol) for cell in alike}
        lowest, near = worst(metric, protocol.config(alike[0], 0)) if alike else None, COLLAPSED.get(metric, 1.0)
        not_collapsed = {
            name: [*of_cell.values()]
            for name, of_cell in values.items()
            if lowest is None or not any(abs(value - lowest) < near for value in of_cell.values())
        }
        return pooled_spread(not_collapsed)

    def _find_family(self, family: str, metric: str) -> tuple[int, Cell | None]:
        """Number of its claims, and the control that all of them share, if they do."""
        members = [claim for claim in self.claims if (claim.family, claim.metric) == (family, metric)]
        plain = members and all(claim.control is not None for claim in members)
        common = set.intersection(*(set(claim.cells) for claim in members)) if plain else set()
        return max(1, len(members)), next(iter(common), None)


def is_of(cells: Sequence[Cell], protocol: Protocol) -> bool:
    """Whether the protocol changes all of the cells; otherwise their runs count as written."""
    return protocol == AS_WRITTEN or all(map(protocol.changes, cells))


def decide(claim: Claim, effect: Effect, half_width: float) -> tuple[Word, int]:
    """Apply the rule above to one effect.

    Args:
        claim: The claim.
        effect: The measured effect, with its error.
        half_width: Half-width of the interval that holds for the family.

    Returns:
        The verdict, and how the effect compares with the published one (see `Claim.excludes`).
    """
    assert effect.half_width is not None
    mean, bound = claim.direction * effect.mean, claim.direction * claim.bound  # the claimed side is above
    against = claim.excludes(effect.mean, effect.half_width)
    if mean - half_width > bound:
        smaller = not claim.slack and claim.direction * against < 0
        return ("smaller than published" if smaller else "reproduced"), against
    if mean + half_width < bound:
        return "opposite", against
    margin = MARGINS.get(claim.metric, 0.0) if claim.margin is None else claim.margin
    inside = not claim.slack and abs(effect.mean) + effect.half_width < margin
    contains = claim.published is not None and abs(effect.mean - claim.published) <= effect.half_width
    return ("no effect" if inside and not contains else "undecided"), against


def _ratio(claim: Claim, effect: Effect, control: Cell | None) -> float | None:
    """How many times the seeds of the other cell the control has; None without a control."""
    if control is None:
        return None
    seeds = dict(zip(claim.cells, effect.n, strict=True))
    others = math.prod(n for cell, n in seeds.items() if cell != control)
    return seeds[control] / others


def _setting(config: Config) -> tuple:
    """What cells must have in common for their seeds to share a variance."""
    return config.data, config.encoder, config.dimensions, config.norm, config.optimizer, config.holdout
