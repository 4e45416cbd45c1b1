"""The probes and their results by name; what they do is in `evaluate`, which is not loaded to know them."""

from collections.abc import Mapping
from typing import Literal, get_args

Frozen = Literal["linear", "linear-cached", "knn", "few-shot"]  # of the encoder as it is
Tuned = Literal["fine-tune", "semi-10", "semi-1"]  # of a copy that is trained with labels
Probe = Literal[Frozen, Tuned]

PROBES: tuple[Probe, ...] = get_args(Frozen)  # measured where none are named
TRANSFER_PROBES: tuple[Probe, ...] = ("linear-cached", "knn")  # the same on another data set
EVERY_PROBE: tuple[Probe, ...] = get_args(Probe)
BASELINE = "random/"  # before the name of a probe of an untrained encoder


def baseline_of(probe: str) -> str:
    """Name of the results of the untrained encoder; that of transfer/cifar100/knn is transfer/cifar100/random/knn."""
    prefix, slash, name = probe.rpartition("/")
    return f"{prefix}{slash}{BASELINE}{name}"


def title_of(probe: str, values: Mapping[str, float]) -> str:
    """The name of a probe for readers: of k-NN with its k."""
    return f"{probe.removesuffix('knn')}{values['k']}-NN" if "k" in values else probe
