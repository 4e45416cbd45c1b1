"""What a claim is: a combination of cells' means, and the side of a bound on which the paper has it."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from hypersphere.paper.cells import Cell

Z95 = 1.96  # of the normal law: the published numbers come without degrees of freedom


class Term(NamedTuple):
    """One cell of a combination."""

    cell: Cell
    weight: float
    published: float | None = None  # the paper's accuracy, in per cent


@dataclass(frozen=True)
class Claim:
    """Σ weight · mean of the cells is said to be above 0, or (`direction` −1) below, or not to miss that by more than
    `slack`."""

    sentence: str
    metric: str
    terms: tuple[Term, ...]
    direction: int = 1
    slack: float = 0.0
    family: str = ""  # claims whose error is controlled together ("": this one alone)
    images: int = 5000  # that each published accuracy was most likely measured on
    margin: float | None = None  # an effect inside ± this is none (None: the metric's)

    @property
    def published(self) -> float | None:
        """The paper's effect, if its tables have all terms."""
        if any(term.published is None for term in self.terms):
            return None
        return round(sum(term.weight * term.published for term in self.terms if term.published is not None), 4)

    @property
    def published_half_width(self) -> float | None:
        """Of the 95 % interval of the paper's effect if each accuracy is one run measured on `images` images: the
        binomial error, which is less if the images are the same, without that of the seeds."""
        if self.published is None:
            return None
        variances = (t.weight**2 * t.published * (100 - t.published) / self.images for t in self.terms if t.published)
        return Z95 * math.sqrt(sum(variances))

    def excludes(self, mean: float, half_width: float) -> int:
        """On which side of the published effect an effect with this interval lies: 1 above, −1 below, 0 if the errors
        of both can explain the difference, or if nothing was published."""
        if self.published is None or self.published_half_width is None:
            return 0
        gap = mean - self.published
        return 0 if abs(gap) <= math.hypot(half_width, self.published_half_width) else int(math.copysign(1, gap))

    @property
    def bound(self) -> float:
        return 0.0 - self.direction * self.slack  # not −0

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(term.cell for term in self.terms)

    @property
    def control(self) -> Cell | None:
        """Of a plain difference, what is subtracted."""
        return self.terms[1].cell if [term.weight for term in self.terms] == [1, -1] else None

    @property
    def test(self) -> str:
        """In symbols: top-1: byol-uni − byol > 0"""
        sign = ">" if self.direction > 0 else "<"
        return f"{self.metric}: {self._combination} {sign} {self.bound:g}"

    @property
    def _combination(self) -> str:
        size = abs(self.terms[0].weight)
        if any(abs(term.weight) != size for term in self.terms) or len(self.terms) > 4:
            return f"{len(self.terms)} cells"
        written = "".join(f"{' + ' if term.weight > 0 else ' − '}{term.cell.name}" for term in self.terms)
        return written.removeprefix(" + ").strip()


def difference(more: Cell, less: Cell, published: tuple[float, float] | None = None) -> tuple[Term, Term]:
    """more − less; `published`: the accuracy of each."""
    first, second = published or (None, None)
    return Term(more, 1, first), Term(less, -1, second)
