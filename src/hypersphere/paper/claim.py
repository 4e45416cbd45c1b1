"""A claim of the paper: a combination of cell means that is said to be above or below a bound."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from hypersphere.paper.cells import Cell

Z95 = 1.96  # of the normal distribution: the published numbers come without degrees of freedom


class Term(NamedTuple):
    """One cell of a combination."""

    cell: Cell
    weight: float
    published: float | None = None  # the paper's accuracy, in per cent


@dataclass(frozen=True)
class Claim:
    """Σ weight · (mean of a cell) is claimed to be above or below 0, or not to miss that by more than `slack`.

    Attributes:
        sentence: The claim in words.
        metric: Metric of the means.
        terms: Cells with their weights.
        direction: 1 for above, −1 for below.
        slack: By how much the effect may miss 0.
        family: Claims whose error rate is controlled together; empty for this one alone.
        images: Number of images on which each published accuracy was probably measured.
        margin: An effect within ± margin counts as none; None for the default of the metric.
    """

    sentence: str
    metric: str
    terms: tuple[Term, ...]
    direction: int = 1
    slack: float = 0.0
    family: str = ""
    images: int = 5000
    margin: float | None = None

    @property
    def published(self) -> float | None:
        """The published effect; None if a term was not published."""
        if any(term.published is None for term in self.terms):
            return None
        return round(sum(term.weight * term.published for term in self.terms if term.published is not None), 4)

    @property
    def published_half_width(self) -> float | None:
        """Half-width of the 95 % interval of the published effect, if each accuracy is one run on `images` images.

        This is the binomial error, an upper bound if the images are the same. It does not include that of the seeds.
        """
        if self.published is None:
            return None
        variances = (t.weight**2 * t.published * (100 - t.published) / self.images for t in self.terms if t.published)
        return Z95 * math.sqrt(sum(variances))

    def excludes(self, mean: float, half_width: float) -> int:
        """Compare an effect with the published one.

        Returns:
            1 if it is above, −1 if it is below, 0 if both errors explain the difference or nothing was published.
        """
        if self.published is None or self.published_half_width is None:
            return 0
        gap = mean - self.published
        return 0 if abs(gap) <= math.hypot(half_width, self.published_half_width) else int(math.copysign(1, gap))

    @property
    def bound(self) -> float:
        """The bound that the effect is compared with."""
        return 0.0 - self.direction * self.slack  # not −0

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells of its terms."""
        return tuple(term.cell for term in self.terms)

    @property
    def control(self) -> Cell | None:
        """The cell that is subtracted, if the effect is a plain difference."""
        return self.terms[1].cell if [term.weight for term in self.terms] == [1, -1] else None

    @property
    def test(self) -> str:
        """The claim in symbols, such as "top-1: byol-uni − byol > 0"."""
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
    """Terms of the difference more − less.

    Args:
        more: Cell with weight 1.
        less: Cell with weight −1.
        published: Published accuracy of each.
    """
    first, second = published or (None, None)
    return Term(more, 1, first), Term(less, -1, second)
