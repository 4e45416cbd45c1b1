"""Chooses the missing runs that give the most information per second, and fit into a given time."""

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
from hypersphere.paper.larger_steps import LARGER_STEPS
from hypersphere.paper.mechanism import MECHANISM, QUESTIONS
from hypersphere.paper.muon import MUON
from hypersphere.paper.photographs import PHOTOGRAPHS
from hypersphere.paper.rates import RATES
from hypersphere.paper.tuning import TRIALS
from hypersphere.paper.verdict import Judge, is_of

STANDARD = (AS_WRITTEN, Protocol(tuned=True), Protocol(epochs=100))
PROTOCOL_WEIGHTS = {AS_WRITTEN: 3.0, Protocol(tuned=True): 2.0}  # other protocols: 1
MAIN_WEIGHT = 4.0  # weight of a main claim; of others, 1
MANY_CLAIMS = 5  # a control of so many claims may have twice the seeds


class Missing(NamedTuple):
    """A run to make.

    Attributes:
        cell: Its cell.
        protocol: Its protocol.
        seed: Its seed.
        sentence: The claim that gains most from it.
        seconds: Its expected duration.
    """

    cell: Cell
    protocol: Protocol
    seed: int
    sentence: str
    seconds: float


Asked = tuple[Cell, Protocol]


@dataclass
class Queue:
    """The seeds that undecided claims, questions and comparisons still need.

    Attributes:
        judge: Decides which claims are open.
        protocols: Protocols to consider.
        seeds: Maximal number of seeds per cell; twice as many for the control of many claims.
    """

    judge: Judge
    protocols: Sequence[Protocol] = STANDARD
    seeds: int = 3

    def __post_init__(self) -> None:
        self.claims: list[tuple[Claim, Protocol, float]] = []
        self.finished: dict[Asked, set[int]] = {}  # seeds that have run
        self.most: Counter[Asked] = Counter()
        controls: Counter[Asked] = Counter()
        for claim, protocol, weight, single in _open(self.judge, self.protocols):
            self.claims.append((claim, protocol, weight))
            for cell in claim.cells:
                key = cell, protocol
                self.finished.setdefault(key, {*self.judge.evidence.of(cell, protocol)})
                controls[key] += cell == claim.control
                allowed = 1 if single else self.seeds * (2 if controls[key] >= MANY_CLAIMS else 1)
                self.most[key] = max(self.most[key], allowed)

    def scores(self) -> dict[Asked, tuple[float, str]]:
        """Information that one more seed of each cell gives, in bits, and the claim that gains most.

        A cell without seeds gets half of the information of its first two: one seed alone decides nothing.
        """
        bits: defaultdict[Asked, float] = defaultdict(float)
        best: dict[Asked, tuple[float, str]] = {}
        for claim, protocol, weight in self.claims:
            parts = {term.cell: (term.weight**2, len(self.finished[term.cell, protocol])) for term in claim.terms}
            variance = sum(share / _known(n) for share, n in parts.values())
            for cell, (share, n) in parts.items():
                more = 1 if n else 2
                after = variance - share / _known(n) + share / _known(n + more)
                gain = weight * math.log2(variance / after) / 2 / more
                bits[cell, protocol] += gain
                best[cell, protocol] = max(best.get((cell, protocol), (0.0, "")), (gain, claim.sentence))
        return {key: (bits[key], best[key][1]) for key in bits if len(self.finished[key]) < self.most[key]}

    def fitting(self, price: Callable[[Cell, Protocol], float], seconds: float, workers: int) -> list[Missing]:
        """Choose run after run the one with the most information per second, as long as it is done in time.

        Args:
            price: Seconds of a run of a cell by a protocol.
            seconds: Time for all runs.
            workers: Runs at once.
        """
        free, taken = [0.0] * workers, []
        prices = {key: price(*key) for key in self.finished}
        while fits := {
            key: (bits / prices[key], sentence)
            for key, (bits, sentence) in self.scores().items()
            if free[0] + prices[key] <= seconds
        }:
            key = max(fits, key=lambda known: fits[known][0])
            heapq.heapreplace(free, free[0] + prices[key])
            seed = next(n for n in itertools.count() if n not in self.finished[key])
            self.finished[key].add(seed)
            taken.append(Missing(*key, seed, fits[key][1], prices[key]))
        return taken


def _known(n: int) -> float:
    """Effective number of seeds: a single seed counts little, since it says nothing about the variance."""
    return n if n > 1 else (0.1, 0.3)[n]


def _open(judge: Judge, protocols: Sequence[Protocol]) -> Iterator[tuple[Claim, Protocol, float, bool]]:
    """Open claims with their protocol and weight, and whether one seed per cell is enough."""
    main = {*MAIN}
    for protocol in protocols:
        for claim in CLAIMS:
            runs = all(cell.obstacle is None for cell in claim.cells) and is_of(claim.cells, protocol)
            if runs and judge(claim, protocol).word in ("undecided", "not tested"):
                yield (
                    claim,
                    protocol,
                    PROTOCOL_WEIGHTS.get(protocol, 1.0) * (MAIN_WEIGHT if claim.sentence in main else 1.0),
                    False,
                )
    for question in QUESTIONS if MECHANISM.protocol in protocols else ():
        claim = Claim(question.sentence, "top-1", difference(question.cell, question.baseline))
        yield claim, MECHANISM.protocol, 2.0, False
    for claim in (*_comparisons(), *_trials()) if AS_WRITTEN in protocols else ():
        if not all(judge.evidence.of(cell) for cell in claim.cells):  # one seed each
            yield claim, AS_WRITTEN, 0.5, True


def _comparisons() -> Iterator[Claim]:
    """Comparisons of each regularized method with the plain one."""
    cells = {row.cell.name: row.cell for row in COMPARISON.rows if row.cell is not None}
    for name, cell in cells.items():
        plain = cells[name.removesuffix("-mhe").removesuffix("-uni")]
        if cell != plain:
            yield Claim(f"{cell.method} against {plain.method}", "k-NN", difference(cell, plain))


def _trials() -> Iterator[Claim]:
    for table in (TRIALS, RATES, LARGER_STEPS, MUON, PHOTOGRAPHS):
        metric = "linear-cached" if table is TRIALS else "k-NN"
        for cell in table.cells:
            yield Claim(f"{table.name}: {cell.name}", metric, (Term(cell, 1),))
