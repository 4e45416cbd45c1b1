"""The probes by name; what they do is in `evaluate`, which the command line need not load to know them."""

from typing import Literal, get_args

Frozen = Literal["linear", "linear-cached", "knn", "few-shot"]  # of the encoder as it is
Tuned = Literal["fine-tune", "semi-10", "semi-1"]  # of a copy that is trained with labels
Probe = Literal[Frozen, Tuned]

PROBES: tuple[Probe, ...] = get_args(Frozen)  # measured where none are named
TRANSFER_PROBES: tuple[Probe, ...] = ("linear-cached", "knn")  # the same on another data set
EVERY_PROBE: tuple[Probe, ...] = get_args(Probe)
