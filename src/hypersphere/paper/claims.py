"""The paper's claims, each with a test and, from the results, a verdict.

The rule was fixed before the runs. An effect is a difference between two cells, seed by seed; its interval the 95 %
t-interval of the mean difference. The claim is *reproduced* if the interval excludes 0 in the claimed direction, *not
reproduced* if it excludes the published effect, *undecided* otherwise; with both, it is reproduced. Where a claim says
that something hardly matters, the bound is what "hardly" allows instead of 0: half a point, or 5 % of the time.
"""

from typing import NamedTuple

from hypersphere.paper.cells import AS_WRITTEN, Cell, Protocol
from hypersphere.paper.figures import FIGURES
from hypersphere.paper.state import Estimate, Evidence, estimate
from hypersphere.paper.tables import ALL_A2, BYOL, PREDICTOR_A2, PREDICTOR_S2, TABLES, UNI


class Claim(NamedTuple):
    """more − less is said to be above 0 (or, `direction` −1, below), or not to miss that by more than `slack`."""

    sentence: str
    metric: str
    more: Cell
    less: Cell
    published: float | None  # the effect, where the paper has a number for it
    direction: int = 1
    slack: float = 0.0

    @property
    def bound(self) -> float:
        return 0.0 - self.direction * self.slack  # not −0


class Verdict(NamedTuple):
    word: str
    effect: Estimate | None


def judge(claim: Claim, evidence: Evidence, protocol: Protocol = AS_WRITTEN) -> Verdict:
    more, less = (evidence.values(cell, claim.metric, protocol) for cell in (claim.more, claim.less))
    effect = estimate([more[seed] - less[seed] for seed in sorted(more.keys() & less.keys())])
    if effect is None:
        return Verdict("not tested", None)
    if effect.half_width is None:
        return Verdict("undecided", effect)
    low, high = effect.mean - effect.half_width, effect.mean + effect.half_width
    if low > claim.bound if claim.direction > 0 else high < claim.bound:
        return Verdict("reproduced", effect)
    excludes = claim.published is not None and not low <= claim.published <= high
    return Verdict("not reproduced" if excludes else "undecided", effect)


def _cell(table: str, *labels: str) -> Cell:
    (found,) = (row.cell for row in TABLES[table].rows if row.labels == labels)
    assert found is not None
    return found


def _published(table: str, *labels: str) -> float:
    return next(row.published["top-1"] for row in TABLES[table].rows if row.labels == labels)


def _placements() -> list[Claim]:
    rows = [row for row in TABLES["tab:sections"].rows if row.cell not in (None, BYOL, UNI)]
    claims = []
    for row in rows:
        assert row.cell is not None
        where = ", ".join(
            name
            for name, mark in zip(("encoder", "projector", "predictor"), row.labels[1:], strict=True)
            if mark == "✓"
        )
        effect = row.published["top-1"] - 90.74
        claims.append(Claim(f"MHE of {where} improves linear accuracy.", "top-1", row.cell, BYOL, effect))
    return claims


def _powers() -> list[Claim]:
    claims = []
    for row in TABLES["tab:mhe"].rows:
        if row.cell not in (None, BYOL, PREDICTOR_A2):
            assert row.cell is not None
            effect = 91.64 - row.published["top-1"]
            claims.append(Claim(f"Power a2 is better than {row.labels[1]}.", "top-1", PREDICTOR_A2, row.cell, effect))
    return claims


def _weights() -> list[Claim]:
    claims = []
    for row in TABLES["tab:weight"].rows:
        assert row.cell is not None
        sentence = f"MHE (s = 2) with weight {row.labels[0]} improves linear accuracy."
        claims.append(Claim(sentence, "top-1", row.cell, BYOL, row.published["top-1"] - 90.74))
        if row.cell is not PREDICTOR_S2:
            sentence = f"The weight hardly matters: {row.labels[0]} is at most half a point behind 10."
            claims.append(Claim(sentence, "top-1", row.cell, PREDICTOR_S2, row.published["top-1"] - 91.34, slack=0.5))
    return claims


def _batches() -> list[Claim]:
    claims = []
    for batch in ("512", "256", "128"):
        byol, uni, mhe = (_cell("tab:batch", name, batch) for name in ("BYOL", "BYOL + Uni", "BYOL-MHE"))
        numbers = [_published("tab:batch", name, batch) for name in ("BYOL", "BYOL + Uni", "BYOL-MHE")]
        claims += [
            Claim(f"At {batch} images at once, MHE keeps up with BYOL.", "top-1", mhe, byol, numbers[2] - numbers[0]),
            Claim(
                f"At {batch} images at once, MHE is better than uniformity loss.",
                "top-1",
                mhe,
                uni,
                numbers[2] - numbers[1],
            ),
        ]
    return claims


_CIRCLE = dict(FIGURES["fig:uni"].panels)
_NO_BN, _NO_BN_MHE = _cell("tab:bn", "–", "–"), _cell("tab:bn", "–", "✓")
SIMCLR = Cell("simclr", "simclr")

_BLOCKS = [
    Claim(f"MHE lowers the energy of the output of stage {n}.", f"energy/layer{n}", ALL_A2, BYOL, None, direction=-1)
    for n in range(1, 5)
]
_OVERHEAD = [
    Claim(f"MHE of {where} takes little more time.", "training time, %", cell, BYOL, None, direction=-1, slack=5.0)
    for where, cell in (("the predictor", PREDICTOR_A2), ("all networks", ALL_A2))
]

_ON_CIRCLE = [
    Claim(f"On the circle, {sentence}.", "uniformity", _CIRCLE[more], _CIRCLE[less], None, direction=direction)
    for sentence, more, less, direction in (
        ("BYOL's features are less uniform than contrastive ones", "BYOL", "contrastive (SimCLR)", 1),
        ("uniformity loss makes features more uniform", "BYOL + Uni", "BYOL", -1),
        ("MHE makes features more uniform", "BYOL-MHE", "BYOL", -1),
    )
]

CLAIMS: tuple[Claim, ...] = (
    *_ON_CIRCLE,
    Claim("BYOL's features are less uniform than contrastive ones.", "uniformity", BYOL, SIMCLR, None),
    Claim("Uniformity loss makes features more uniform.", "uniformity", UNI, BYOL, None, direction=-1),
    Claim("MHE of the predictor makes features more uniform.", "uniformity", PREDICTOR_A2, BYOL, None, direction=-1),
    Claim("MHE of all networks makes features more uniform.", "uniformity", ALL_A2, BYOL, None, direction=-1),
    Claim("Uniformity loss improves linear accuracy.", "top-1", UNI, BYOL, 91.48 - 90.74),
    *_placements(),
    *_powers(),
    *_weights(),
    *_batches(),
    Claim("Without BatchNorm, MHE avoids collapse in part.", "top-1", _NO_BN_MHE, _NO_BN, 45.72 - 28.76),
    Claim("MHE without BatchNorm is more uniform than BatchNorm.", "uniformity", _NO_BN_MHE, BYOL, None, direction=-1),
    *_BLOCKS,
    *_OVERHEAD,
)
