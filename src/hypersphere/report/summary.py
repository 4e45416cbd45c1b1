"""The main claims, and the paragraph about them in RESULTS.md."""

from collections.abc import Sequence
from typing import NamedTuple

from hypersphere.paper.cells import Protocol
from hypersphere.paper.claim import Claim
from hypersphere.paper.claims import CLAIMS, MAIN
from hypersphere.paper.verdict import WORDS, Judge, Verdict
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
    """One paragraph about the verdicts."""
    by_word: dict[str, list[str]] = {word: [] for word in WORDS}
    for one in shown:
        if one.answers:
            by_word[one.answers[0][1].word].append(_answer(one))
    decided = sum(len(by_word[word]) for word in WORDS[:-2])
    waiting = len(shown) - decided - len(by_word["undecided"])
    sentences = [f"Of the {len(shown)} main claims {decided or 'none'} {'is' if decided == 1 else 'are'} decided."]
    sentences += [f"*{word.capitalize()}*: {'; '.join(of_word)}." for word, of_word in by_word.items() if of_word]
    sentences += [f"The other {waiting} need more runs: one of their cells has fewer than two seeds."] * (waiting > 0)
    return " ".join(sentences)


def _answer(shown: MainClaim) -> str:
    """The claim, its answer, and the verdicts by other protocols."""
    claim, ((protocol, verdict), *others) = shown.claim, shown.answers
    parts = [f"{protocol}: {verdict.effect}{of_batch(claim, protocol)}"]
    parts += [f"published {published(claim)}"] if claim.published is not None else []
    parts += [f"{other}: {found.effect}, {found.word}{of_batch(claim, other)}" for other, found in others]
    return f"{claim.sentence.removesuffix('.')} ({'; '.join(parts)})"
