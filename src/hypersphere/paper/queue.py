"""Which missing runs tell most per minute, and which of them fit into a given time."""

import heapq
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hypersphere.paper.cells import AS_WRITTEN, Cell, Protocol
from hypersphere.paper.claim import Claim, Term, difference
from hypersphere.paper.claims import CLAIMS, MAIN
from hypersphere.paper.comparison import COMPARISON
from hypersphere.paper.mechanism import MECHANISM, QUESTIONS
from hypersphere.paper.tuning import TRIALS
from hypersphere.paper.verdict import Judge, is_of

STANDARD = (AS_WRITTEN, Protocol(tuned=True), Protocol(epochs=100))
WORTH = {AS_WRITTEN: 3.0, Protocol(tuned=True): 2.0}  # of an answer by a protocol; by any other, 1
OF_MAIN = 4.0  # of a main claim; of any other, 1
MANY = 5  # claims that compare with a cell: it may have twice the seeds


class Missing(NamedTuple):
    """A run that is to be made, what it is for, and its seconds."""

    cell: Cell
    protocol: Protocol
    seed: int
    sentence: str  # of the claim that gains most from it
    seconds: float


Asked = tuple[Cell, Protocol]


@dataclass
class Queue:
    """What undecided claims, questions and comparisons of ours ask for: seeds of cells by protocols."""

    judge: Judge
    protocols: Sequence[Protocol] = STANDARD
    seeds: int = 3  # of a cell at most; twice as many of one that many claims compare with

    def __post_init__(self) -> None:
        self.claims: list[tuple[Claim, Protocol, float]] = []
        self.there: dict[Asked, set[int]] = {}  # seeds that have run
        self.most: Counter[Asked] = Counter()
        controls: Counter[Asked] = Counter()
        for claim, protocol, weight, single in _open(self.judge, self.protocols):
            self.claims.append((claim, protocol, weight))
            for cell in claim.cells:
                key = cell, protocol
                self.there.setdefault(key, {*self.judge.evidence.of(cell, protocol)})
                controls[key] += cell == claim.control
                allowed = 1 if single else self.seeds * (2 if controls[key] >= MANY else 1)
                self.most[key] = max(self.most[key], allowed)

    def scores(self) -> dict[Asked, tuple[float, str]]:
        """Of one seed more of each: the bits that it tells, and the claim that gains most. Of a cell without any seed
        the first two are taken together, and half of what they tell: one alone decides nothing."""
        bits: defaultdict[Asked, float] = defaultdict(float)
        best: dict[Asked, tuple[float, str]] = {}
        for claim, protocol, weight in self.claims:
            parts = {term.cell: (term.weight**2, len(self.there[term.cell, protocol])) for term in claim.terms}
            variance = sum(share / _known(n) for share, n in parts.values())
            for cell, (share, n) in parts.items():
                more = 1 if n else 2
                after = variance - share / _known(n) + share / _known(n + more)
                gain = weight * math.log2(variance / after) / 2 / more
                bits[cell, protocol] += gain
                best[cell, protocol] = max(best.get((cell, protocol), (0.0, "")), (gain, claim.sentence))
        return {key: (bits[key], best[key][1]) for key in bits if len(self.there[key]) < self.most[key]}

    def fitting(
        self, price: Callable[[Cell, Protocol], float], seconds: float, workers: int, sharing: int
    ) -> list[Missing]:
        """Run after run, that which tells most per second, as long as it is done in time by so many workers. Runs that
        share a device with others take as many times as long."""
        free, taken = [0.0] * workers, []
        prices = {key: price(*key) for key in self.there}
        while fits := {
            key: (bits / prices[key], sentence)
            for key, (bits, sentence) in self.scores().items()
            if free[0] + sharing * prices[key] <= seconds
        }:
            key = max(fits, key=lambda known: fits[known][0])
            heapq.heapreplace(free, free[0] + sharing * prices[key])
            seed = next(n for n in itertools.count() if n not in self.there[key])
            self.there[key].add(seed)
            taken.append(Missing(*key, seed, fits[key][1], prices[key]))
        return taken


def _known(n: int) -> float:
    """Seeds' worth that is known of a mean: little as long as there is no second one to tell how seeds vary."""
    return n if n > 1 else (0.1, 0.3)[n]


def _open(judge: Judge, protocols: Sequence[Protocol]) -> Iterator[tuple[Claim, Protocol, float, bool]]:
    """What is not decided yet, with what an answer is worth, and whether one seed of each cell is enough."""
    main = {*MAIN}
    for protocol in protocols:
        for claim in CLAIMS:
            runs = all(cell.obstacle is None for cell in claim.cells) and is_of(claim.cells, protocol)
            if runs and judge(claim, protocol).word in ("undecided", "not tested"):
                yield claim, protocol, WORTH.get(protocol, 1.0) * (OF_MAIN if claim.sentence in main else 1.0), False
    for question in QUESTIONS if MECHANISM.protocol in protocols else ():
        claim = Claim(question.sentence, "top-1", difference(question.cell, question.baseline))
        yield claim, MECHANISM.protocol, 2.0, False
    for claim in (*_comparisons(), *_trials()) if AS_WRITTEN in protocols else ():
        if not all(judge.evidence.of(cell) for cell in claim.cells):  # one seed each
            yield claim, AS_WRITTEN, 0.5, True


def _comparisons() -> Iterator[Claim]:
    """Does a regularizer help methods other than BYOL?"""
    cells = {row.cell.name: row.cell for row in COMPARISON.rows if row.cell is not None}
    for name, cell in cells.items():
        plain = cells[name.removesuffix("-mhe").removesuffix("-uni")]
        if cell != plain:
            yield Claim(f"{cell.method} against {plain.method}", "k-NN", difference(cell, plain))


def _trials() -> Iterator[Claim]:
    for cell in TRIALS.cells:
        yield Claim(f"tuning: {cell.name}", "linear-cached", (Term(cell, 1),))
