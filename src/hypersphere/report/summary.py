"""The main claims, and what RESULTS.md says of them first."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from hypersphere.paper.cells import Protocol
from hypersphere.paper.claim import Claim
from hypersphere.paper.claims import CLAIMS, MAIN
from hypersphere.paper.verdict import WORDS, Judge, Verdict
from hypersphere.report.markdown_blocks import pipe_table
from hypersphere.report.verdicts import of_batch, published


class MainClaim(NamedTuple):
    """A main claim with its verdict by each protocol that has runs for it."""

    claim: Claim
    verdicts: dict[Protocol, Verdict]

    @property
    def answers(self) -> list[tuple[Protocol, Verdict]]:
        """Verdicts with an interval; the first one, by the protocol closest to the paper's, is the answer."""
        return [one for one in self.verdicts.items() if one[1].half_width is not None]


def main_claims(judge: Judge, protocols: Sequence[Protocol]) -> list[MainClaim]:
    """The main claims with their verdicts."""
    by_sentence = {claim.sentence: claim for claim in CLAIMS}
    shown = []
    for sentence in MAIN:
        claim = by_sentence[sentence]
        found = {protocol: judge(claim, protocol) for protocol in protocols}
        shown.append(MainClaim(claim, {p: v for p, v in found.items() if v.effect is not None}))
    return shown


def conclusions(shown: Sequence[MainClaim]) -> str:
    """A sentence about the verdicts, and the table of the claims."""
    words = Counter(one.answers[0][1].word for one in shown if one.answers)
    decided = {word: words[word] for word in WORDS if words[word] and word not in ("undecided", "not tested")}
    counted = "; ".join(f"{n} {word}" for word, n in decided.items())
    total = sum(decided.values())
    sentence = f"Of the {len(shown)} main claims {total or 'none'} {'is' if total == 1 else 'are'} decided"
    waiting = sum(not one.answers for one in shown)
    parts = [sentence + f" ({counted})" * (total > 0) + "."]
    parts += [f"For {waiting} of the others, one of their cells has fewer than two seeds."] * (waiting > 0)
    table = pipe_table(("claim", "published", "ours", "verdict"), map(_row, shown))
    return "\n".join([" ".join(parts), "", *table])


def _row(shown: MainClaim) -> tuple[str, str, str, str]:
    claim = shown.claim
    ours = (f"{protocol}: {found.effect}{of_batch(claim, protocol)}" for protocol, found in shown.verdicts.items())
    verdicts = "; ".join(f"{found.description} ({protocol})" for protocol, found in shown.answers)
    return claim.sentence.removesuffix("."), published(claim), "; ".join(ours), verdicts or "undecided"
