"""The paper's claims, each with the combination of cells that tests it."""

import itertools
import math
from collections.abc import Iterator

from hypersphere.paper.cells import Cell, Row, Table
from hypersphere.paper.cifar100 import CIFAR100
from hypersphere.paper.claim import Claim, Term, difference
from hypersphere.paper.figures import FIGURES, HEADS_A2
from hypersphere.paper.mechanism import NO_PREDICTOR, NO_PREDICTOR_MHE
from hypersphere.paper.tables import (
    ALL_A2,
    BY_BATCH,
    BY_UPDATE,
    BYOL,
    NO_BN,
    NO_BN_MHE,
    PREDICTOR_A2,
    PREDICTOR_S2,
    TABLES,
    UNI,
)

SIMCLR = Cell("simclr", "simclr")
FURTHER = Table(
    "claims",
    "What claims compare with beyond the paper's tables: CIFAR-10, ResNet-18, 300 epochs",
    ("method",),
    (Row(("SimCLR",), SIMCLR, {}),),
    measures=("top-1", "k-NN", "uniformity"),
)
BESIDE = Table(
    "beside",
    "What claims compare of the tables' cells beside linear accuracy: CIFAR-10, ResNet-18, 300 epochs",
    ("method", "cell"),
    tuple(
        Row((label, cell.name), cell, {})
        for label, cell in (
            ("BYOL", BYOL),
            ("BYOL + Uni", UNI),
            ("BYOL-MHE, predictor", PREDICTOR_A2),
            ("BYOL-MHE, projector and predictor", HEADS_A2),
            ("BYOL-MHE, all networks", ALL_A2),
            ("BYOL without BatchNorm", NO_BN),
            ("BYOL-MHE, all networks, without BatchNorm", NO_BN_MHE),
        )
    ),
    measures=("k-NN", "uniformity", "effective rank"),
)
# Accuracies of the CIFAR-10 ablations all end in an even hundredth, as accuracies on 5,000 images do.
_TEST_IMAGES = {"CIFAR-10": 10_000, "CIFAR-100": 10_000, "STL-10": 8_000, "ImageNet": 50_000}
NETWORKS = ("encoder", "projector", "predictor")
MAIN_EFFECT = 0.3  # margin of main effects in points: they are known twice as well as a cell
UNI_LABEL = "BYOL + Uni"

Measured = tuple[Cell, float]  # a cell and its published accuracy


def _row(table: str, *labels: str, metric: str = "top-1") -> Measured:
    (found,) = (row for row in TABLES[table].rows if row.labels == labels)
    assert found.cell is not None
    return found.cell, found.published[metric]


def _better(
    sentence: str,
    more: Measured,
    less: Measured,
    family: str = "",
    direction: int = 1,
    slack: float = 0.0,
    metric: str = "top-1",
    images: int = 5000,
) -> Claim:
    """A claim about accuracy, with the published numbers of the tables."""
    terms = difference(more[0], less[0], (more[1], less[1]))
    return Claim(sentence, metric, terms, direction, slack, family, images)


def _rows(table: str) -> Iterator[tuple[tuple[str, ...], Measured]]:
    for row in TABLES[table].rows:
        if row.cell not in (None, BYOL, UNI):
            assert row.cell is not None
            yield row.labels, (row.cell, row.published["top-1"])


_BYOL, _UNI = (BYOL, 90.74), (UNI, 91.48)
_A2, _S2 = (PREDICTOR_A2, 91.64), (PREDICTOR_S2, 91.34)


def _uniformity() -> Iterator[Claim]:
    sentence = "BYOL's features are less uniform than contrastive ones."
    yield Claim(sentence, "uniformity", difference(BYOL, SIMCLR))
    changes = (
        ("Uniformity loss", UNI),
        ("MHE of the predictor", PREDICTOR_A2),
        ("MHE of projector and predictor", HEADS_A2),
        ("MHE of all networks", ALL_A2),
    )
    for what, cell in changes:
        sentence = f"{what} makes features more uniform."
        yield Claim(sentence, "uniformity", difference(cell, BYOL), -1, family="uniformity against BYOL")


def _on_circle() -> Iterator[Claim]:
    """Claims about BYOL-MHE were written before their runs, the others after the first seed."""
    panel, without = (dict(FIGURES[f].panels) for f in ("fig:uni", "fig:pca"))
    byol = panel["BYOL"]
    all_layers, not_output = without["no BN, MHE, all layers"], without["no BN, MHE, not at the output"]
    for sentence, more, less in (
        ("contrastive features are more uniform than BYOL's", panel["contrastive (SimCLR)"], byol),
        ("BYOL's features are more uniform than a random encoder's", byol, panel["random encoder"]),
        ("BYOL's features are more uniform with BatchNorm than without", byol, without["no BN, no MHE"]),
        ("uniformity loss makes features more uniform", panel["BYOL + Uni"], byol),
        ("MHE makes features more uniform", panel["BYOL-MHE"], byol),
        ("MHE of all layers (ours) makes features more uniform", panel["BYOL-MHE, all layers"], byol),
        ("MHE except at the output (ours) makes features more uniform", panel["BYOL-MHE, not at the output"], byol),
        ("without BatchNorm, MHE makes features more uniform", without["no BN, MHE"], without["no BN, no MHE"]),
        ("MHE without BatchNorm is more uniform than BatchNorm", without["no BN, MHE"], byol),
        ("MHE of all layers (ours), without BatchNorm, is more uniform than BatchNorm", all_layers, byol),
        ("MHE except at the output (ours), without BatchNorm, is more uniform than BatchNorm", not_output, byol),
    ):
        yield Claim(f"On the circle, {sentence}.", "uniformity", difference(more, less), -1, family="on the circle")


def _accuracy() -> Iterator[Claim]:
    family = "tab:sections against BYOL"
    yield _better("Uniformity loss improves linear accuracy.", _UNI, _BYOL, family)
    for labels, cell in _rows("tab:sections"):
        yield _better(f"MHE of {_places(labels)} improves linear accuracy.", cell, _BYOL, family)
    sentence = "MHE of the predictor improves k-NN accuracy (on CIFAR-10; fig:knn is of STL-10)."
    yield Claim(sentence, "k-NN", difference(PREDICTOR_A2, BYOL))
    sentence = "k-NN accuracy hardly depends on its settings: less than a point between the best and the worst."
    yield Claim(sentence, "k-NN range", (Term(BYOL, 1),), -1, slack=1.0)
    sentence = "BYOL is better than SimCLR (ResNet-18; the paper's number is of ResNet-50)."
    yield Claim(sentence, "top-1", difference(BYOL, SIMCLR))


def _places(labels: tuple[str, ...]) -> str:
    """The networks that a row marks: "the encoder", "encoder and projector", …"""
    *others, last = (name for name, mark in zip(NETWORKS, labels[1:], strict=True) if mark == "✓")
    return f"{', '.join(others)} and {last}" if others else f"the {last}"


def factorial(table: Table, *networks: str) -> tuple[Term, ...]:
    """Terms of a factorial effect in tab:sections, or in the same table on other data.

    Each effect is a combination of all eight cells.

    Args:
        table: The table.
        networks: One network for its main effect, several for their interaction.
    """
    terms = []
    for row in table.rows:
        if row.cell is None or row.labels[0] == UNI_LABEL:
            continue
        off = sum(mark == "–" for name, mark in zip(NETWORKS, row.labels[1:], strict=True) if name in networks)
        terms.append(Term(row.cell, (-1) ** off / 4, row.published.get("top-1")))
    return tuple(terms)


def _main_effects(table: Table, on: str = "") -> Iterator[Claim]:
    for network in NETWORKS:
        sentence = f"MHE of the {network} improves linear accuracy, averaged over the other networks{on}."
        family = f"main effects of {table.name}"
        yield Claim(sentence, "top-1", factorial(table, network), family=family, margin=MAIN_EFFECT)


def interactions(table: Table) -> Iterator[Claim]:
    """Interactions of networks; the paper makes no claim about them, so they are estimated, not judged."""
    for size in (2, 3):
        for networks in itertools.combinations(NETWORKS, size):
            sentence = f"Interaction of {' × '.join(networks)}"
            yield Claim(sentence, "top-1", factorial(table, *networks), family=f"interactions of {table.name}")


def _on_cifar100() -> Iterator[Claim]:
    """Ours: the paper has no such numbers."""
    (byol,) = (row.cell for row in CIFAR100.rows if row.cell is not None and row.cell.name == "cifar100-byol")
    for row in CIFAR100.rows:
        if row.cell in (None, byol):
            continue
        assert row.cell is not None
        what = "Uniformity loss" if row.labels[0] == UNI_LABEL else f"MHE of {_places(row.labels)}"
        sentence = f"{what} improves linear accuracy on CIFAR-100 (ours)."
        yield Claim(sentence, "top-1", difference(row.cell, byol), family="CIFAR-100 against BYOL")


def _powers() -> Iterator[Claim]:
    for (_, power), cell in _rows("tab:mhe"):
        if cell != _A2:
            yield _better(f"Angular power a2 is better than power {power}.", _A2, cell, "a2 against other powers")
        if cell not in (_A2, _S2):  # which other tables have
            family = "tab:mhe against BYOL"
            yield _better(f"MHE with power {power} improves linear accuracy.", cell, _BYOL, family)
        if power in ("0", "1"):
            sentence = f"The power hardly matters: {power} is at most half a point behind 2."
            yield _better(sentence, cell, _S2, slack=0.5)


def _weights() -> Iterator[Claim]:
    for (weight,), cell in _rows("tab:weight"):
        if weight == "0.001":
            sentence = "MHE (s = 2) with weight 0.001 is at most half a point better than BYOL."
            yield _better(sentence, cell, _BYOL, direction=-1, slack=0.5)
            continue
        sentence = f"MHE (s = 2) with weight {weight} improves linear accuracy."
        yield _better(sentence, cell, _BYOL, "tab:weight against BYOL")
        if cell != _S2:
            yield _better(
                f"The weight hardly matters: {weight} is at most half a point behind 10.", cell, _S2, slack=0.5
            )


def _batches(reading: str) -> Iterator[Claim]:
    """Claims about small batches, by one of the two readings of the learning rate."""
    of_reading = "" if reading == BY_UPDATE else f" (learning rate {reading})"

    def of(method: str, batch: str) -> Measured:
        return _row("tab:batch", method, batch, BY_UPDATE if batch == "1024" else reading)

    for batch in ("512", "256", "128"):
        byol, uni, mhe = (of(name, batch) for name in ("BYOL", "BYOL + Uni", "BYOL-MHE"))
        at = f"At {batch} images at once, MHE is"
        yield _better(f"{at} at most half a point behind BYOL{of_reading}.", mhe, byol, slack=0.5)
        if batch != "512":  # where the paper's table has it the other way round
            sentence = f"{at} better than uniformity loss{of_reading}."
            yield _better(sentence, mhe, uni, f"MHE against Uni in small batches{of_reading}")
    start = "From 1024 to 128 images at once"
    for name, sentence, direction, slack in (
        ("BYOL + Uni", f"{start}, uniformity loss loses more than BYOL{of_reading}.", -1, 0.0),
        ("BYOL-MHE", f"{start}, MHE loses at most half a point more than BYOL{of_reading}.", 1, 0.5),
    ):
        cells = (of(name, "128"), of(name, "1024"), of("BYOL", "128"), of("BYOL", "1024"))
        terms = tuple(Term(cell, sign, top) for (cell, top), sign in zip(cells, (1, -1, -1, 1), strict=True))
        yield Claim(sentence, "top-1", terms, direction, slack)


def _without_batchnorm() -> Iterator[Claim]:
    neither, mhe = _row("tab:bn", "–", "–"), _row("tab:bn", "–", "✓")
    yield _better("Without BatchNorm, BYOL is worse.", neither, _BYOL, direction=-1)
    sentence = "Without BatchNorm, BYOL's features are less uniform."
    yield Claim(sentence, "uniformity", difference(neither[0], BYOL))
    yield _better("Without BatchNorm, MHE avoids collapse in part.", mhe, neither)
    yield _better("MHE without BatchNorm is worse than BatchNorm.", mhe, _BYOL, direction=-1)
    sentence = "MHE without BatchNorm is more uniform than BatchNorm."
    yield Claim(sentence, "uniformity", difference(mhe[0], BYOL), -1)


def _without_predictor() -> Iterator[Claim]:
    """The paper's conjecture about future work, tested with cells of `mechanism`."""
    sentence = "Without a predictor, MHE of encoder and projector avoids collapse in part."
    yield Claim(sentence, "top-1", difference(NO_PREDICTOR_MHE, NO_PREDICTOR))
    sentence = "MHE may replace the predictor: at most half a point behind BYOL."
    yield Claim(sentence, "top-1", difference(NO_PREDICTOR_MHE, BYOL), slack=0.5)


def _energies_and_time() -> Iterator[Claim]:
    """The appendix regularizes projector and predictor; regularizing all networks is our variant."""
    for where, cell in (("", HEADS_A2), (" of all networks (ours)", ALL_A2)):
        for n in range(1, 5):
            sentence = f"MHE{where} lowers the energy of the output of stage {n}, on average over training."
            family = f"energies of the stages{where}"
            yield Claim(sentence, f"mean energy/layer{n}", difference(cell, BYOL), -1, family=family)
        sentence = f"MHE{where} lowers the uniformity G2 of features, on average over training (CIFAR-10)."
        yield Claim(sentence, "mean uniformity_of_features", difference(cell, BYOL), -1)
    for where, cell in (("the predictor", PREDICTOR_A2), ("all networks", ALL_A2)):
        sentence = f"MHE of {where} takes at most 5 % more time."
        yield Claim(sentence, "training time, %", difference(cell, BYOL), -1, slack=round(100 * math.log(1.05), 2))


def _large() -> Iterator[Claim]:
    """Claims about ResNet-50, without two claims of +0.06 that would need 213 seeds."""
    for data in ("CIFAR-10", "CIFAR-100", "STL-10"):
        simclr, byol, uni, mhe = (
            _row("tab:cifar", method, data) for method in ("SimCLR", "BYOL", "BYOL + Uni", "BYOL-MHE")
        )
        where, images = f"on {data} (ResNet-50, 1000 epochs)", _TEST_IMAGES[data]
        family = f"tab:cifar against BYOL on {data}"
        yield _better(f"BYOL is better than SimCLR {where}.", byol, simclr, images=images)
        yield _better(f"BYOL + Uni is better than BYOL {where}.", uni, byol, family, images=images)
        yield _better(f"BYOL-MHE is better than BYOL {where}.", mhe, byol, family, images=images)
        if data == "STL-10":
            yield _better(f"BYOL-MHE is better than BYOL + Uni {where}.", mhe, uni, images=images)
    for table, labels, epochs, further in (
        ("tab:imagenet", (), 300, "top-5"),
        ("tab:imgnet1000", ("4096",), 1000, "k-NN"),
    ):
        for metric in ("top-1", further):
            mhe, byol = (_row(table, method, *labels, metric=metric) for method in ("BYOL-MHE", "BYOL"))
            sentence = f"BYOL-MHE is better than BYOL on ImageNet ({epochs} epochs, {metric})."
            yield _better(sentence, mhe, byol, metric=metric, images=_TEST_IMAGES["ImageNet"])


CLAIMS: tuple[Claim, ...] = (
    *_uniformity(),
    *_on_circle(),
    *_accuracy(),
    *_main_effects(TABLES["tab:sections"]),
    *_on_cifar100(),
    *_main_effects(CIFAR100, " on CIFAR-100 (ours)"),
    *_powers(),
    *_weights(),
    *_batches(BY_UPDATE),
    *_batches(BY_BATCH),
    *_without_batchnorm(),
    *_without_predictor(),
    *_energies_and_time(),
    *_large(),
)

# The ten main claims: they are in the summary of the results, and their runs are made first.
MAIN = (
    "Uniformity loss improves linear accuracy.",
    "MHE of the predictor improves linear accuracy.",
    "MHE of projector and predictor improves linear accuracy.",
    "MHE of encoder, projector and predictor improves linear accuracy.",
    "Angular power a2 is better than power 2.",
    "The weight hardly matters: 1 is at most half a point behind 10.",
    "From 1024 to 128 images at once, uniformity loss loses more than BYOL.",
    "From 1024 to 128 images at once, MHE loses at most half a point more than BYOL.",
    "Without BatchNorm, MHE avoids collapse in part.",
    "MHE of projector and predictor makes features more uniform.",
)
