"""The first page of RESULTS.md: ten claims in one picture and one paragraph, and where we differ from the paper."""

from collections.abc import Sequence
from typing import NamedTuple

from hypersphere.paper.cells import Protocol
from hypersphere.paper.claim import Claim
from hypersphere.paper.claims import CLAIMS, MAIN
from hypersphere.paper.deviations import DEVIATIONS
from hypersphere.paper.verdict import WORDS, Judge, Verdict
from hypersphere.report.pipes import pipes
from hypersphere.report.verdicts import of_batch, published

SUMMARY = """## Summary

{picture}Ten claims of the paper with their effects and 95 % intervals. *Paper*: the published effect; its interval
counts the sampling of 5,000 test images only, as an upper bound. *Ours*: our runs with the paper's options for 300
epochs; *tuned*: with options tuned for BYOL; *100 ep.*: with the paper's options for 100 epochs. Their intervals count
the variance of n seeds only; one seed has none. The shaded side is the claimed one. Verdicts use the wider intervals of
whole families of claims (see Claims). MHE is the minimum-hyperspherical-energy regularizer of the weights; *a2* is its
angular energy with power 2, *2* the Euclidean one. G2 is the uniformity of features.

"""
DIFFERENCES = """### Where we differ from the paper

What the text leaves open, and what we changed. More is in the docstrings of `src/hypersphere/paper`.

"""


class Shown(NamedTuple):
    """A main claim with its verdict by each protocol that has runs of it."""

    claim: Claim
    verdicts: dict[Protocol, Verdict]

    @property
    def answers(self) -> list[tuple[Protocol, Verdict]]:
        """Those with an interval. The first, of the protocol closest to the paper's, is the answer."""
        return [one for one in self.verdicts.items() if one[1].half_width is not None]


def main_claims(judge: Judge, protocols: Sequence[Protocol]) -> list[Shown]:
    by_sentence = {claim.sentence: claim for claim in CLAIMS}
    shown = []
    for sentence in MAIN:
        claim = by_sentence[sentence]
        found = {protocol: judge(claim, protocol) for protocol in protocols}
        shown.append(Shown(claim, {p: v for p, v in found.items() if v.effect is not None}))
    return shown


def summary(judge: Judge, protocols: Sequence[Protocol], picture: str | None) -> str:
    """`picture`: where the forest plot is, if it is drawn."""
    shown = main_claims(judge, protocols)
    drawn = f"![The ten main claims: published and found effects with their intervals]({picture})\n\n"
    rows = ((d.point, d.paper, d.here) for d in DEVIATIONS)
    table = "\n".join(pipes(("point", "paper", "here"), rows))
    head = SUMMARY.format(picture=drawn if picture else "")
    return head + conclusions(shown) + "\n" + DIFFERENCES + table + "\n"


def conclusions(shown: Sequence[Shown]) -> str:
    """One paragraph, from the verdicts."""
    by_word: dict[str, list[str]] = {word: [] for word in WORDS}
    for one in shown:
        if one.answers:
            by_word[one.answers[0][1].word].append(_told(one))
    decided = sum(len(by_word[word]) for word in WORDS[:-2])
    waiting = len(shown) - decided - len(by_word["undecided"])
    sentences = [f"Of the {len(shown)} main claims {decided or 'none'} {'is' if decided == 1 else 'are'} decided."]
    sentences += [f"*{word.capitalize()}*: {'; '.join(of_word)}." for word, of_word in by_word.items() if of_word]
    sentences += [f"The other {waiting} need more runs: one of their cells has fewer than two seeds."] * (waiting > 0)
    return " ".join(sentences) + "\n"


def _told(shown: Shown) -> str:
    """The claim, its answer, and what other protocols say."""
    claim, ((protocol, verdict), *others) = shown.claim, shown.answers
    parts = [f"{protocol}: {verdict.effect}{of_batch(claim, protocol)}"]
    parts += [f"published {published(claim)}"] if claim.published is not None else []
    parts += [f"{other}: {found.effect}, {found.word}{of_batch(claim, other)}" for other, found in others]
    return f"{claim.sentence.removesuffix('.')} ({'; '.join(parts)})"
