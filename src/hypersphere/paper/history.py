"""Verdicts of version 1 of the rule, on all claims that had two seeds when version 2 replaced it.

RESULTS.md says what version 1 was, and why it was replaced.
"""

from typing import NamedTuple

from hypersphere.paper.cells import AS_WRITTEN, Protocol


class Before(NamedTuple):
    """A verdict of version 1."""

    sentence: str
    protocol: Protocol
    effect: str
    word: str


_TUNED = Protocol(tuned=True)
VERSION_1 = (
    Before(
        "On the circle, contrastive features are more uniform than BYOL's.", AS_WRITTEN, "+0.03 ± 0.12", "undecided"
    ),
    Before(
        "On the circle, BYOL's features are more uniform than a random encoder's.",
        AS_WRITTEN,
        "−0.35 ± 2.82",
        "undecided",
    ),
    Before("Uniformity loss makes features more uniform.", _TUNED, "+0.12 ± 0.08", "not reproduced"),
    Before("MHE of the predictor makes features more uniform.", _TUNED, "+0.00 ± 0.12", "undecided"),
    Before("Uniformity loss improves linear accuracy.", _TUNED, "−0.78 ± 0.65", "not reproduced"),
    Before("MHE of the predictor improves linear accuracy.", _TUNED, "+0.14 ± 1.22", "undecided"),
    Before(
        "MHE of the predictor improves k-NN accuracy (on CIFAR-10; fig:knn is of STL-10).",
        _TUNED,
        "−0.20 ± 0.56",
        "undecided",
    ),
    Before("MHE of the predictor takes at most 5 % more time.", _TUNED, "+1.75 ± 10.00", "undecided"),
)
