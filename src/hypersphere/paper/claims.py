"""The paper's claims, each with the difference that would show it."""

from collections.abc import Iterator

from hypersphere.paper.cells import Cell, Row, Table
from hypersphere.paper.figures import FIGURES
from hypersphere.paper.tables import ALL_A2, BYOL, PREDICTOR_A2, PREDICTOR_S2, TABLES, UNI
from hypersphere.paper.verdict import Claim

SIMCLR = Cell("simclr", "simclr")
FURTHER = Table(
    "claims",
    "What claims compare with beyond the paper's tables: CIFAR-10, ResNet-18, 300 epochs",
    ("method",),
    (Row(("SimCLR",), SIMCLR, {}),),
    measures=("top-1", "k-NN", "uniformity"),
)
_WITHOUT, _WITHOUT_MHE = (row.cell for row in TABLES["tab:bn"].rows if row.labels[0] == "–")
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
            ("BYOL-MHE, all networks", ALL_A2),
            ("BYOL without BatchNorm", _WITHOUT),
            ("BYOL-MHE, all networks, without BatchNorm", _WITHOUT_MHE),
        )
        if cell is not None
    ),
    measures=("k-NN", "uniformity"),
)


def _row(table: str, *labels: str, metric: str = "top-1") -> tuple[Cell, float]:
    """The cell, and its published accuracy."""
    (found,) = (row for row in TABLES[table].rows if row.labels == labels)
    assert found.cell is not None
    return found.cell, found.published[metric]


def _better(
    sentence: str,
    more: tuple[Cell, float],
    less: tuple[Cell, float],
    direction: int = 1,
    slack: float = 0.0,
    metric: str = "top-1",
) -> Claim:
    """In accuracy, linear unless said otherwise, by what the tables say."""
    return Claim(sentence, metric, more[0], less[0], round(more[1] - less[1], 2), direction, slack)


def _rows(table: str) -> Iterator[tuple[tuple[str, ...], tuple[Cell, float]]]:
    for row in TABLES[table].rows:
        if row.cell not in (None, BYOL, UNI):
            assert row.cell is not None
            yield row.labels, (row.cell, row.published["top-1"])


_BYOL, _UNI = (BYOL, 90.74), (UNI, 91.48)
_A2, _S2 = (PREDICTOR_A2, 91.64), (PREDICTOR_S2, 91.34)


def _uniformity() -> Iterator[Claim]:
    yield Claim("BYOL's features are less uniform than contrastive ones.", "uniformity", BYOL, SIMCLR, None)
    changes = (
        ("Uniformity loss", UNI),
        ("MHE of the predictor", PREDICTOR_A2),
        ("MHE of all networks", ALL_A2),
    )
    for what, cell in changes:
        yield Claim(f"{what} makes features more uniform.", "uniformity", cell, BYOL, None, direction=-1)


def _on_circle() -> Iterator[Claim]:
    """Added after the first seed had run."""
    panel, without = dict(FIGURES["fig:uni"].panels), dict(FIGURES["fig:pca"].panels)
    byol = panel["BYOL"]
    for sentence, more, less in (
        ("contrastive features are more uniform than BYOL's", panel["contrastive (SimCLR)"], byol),
        ("BYOL's features are more uniform than a random encoder's", byol, panel["random encoder"]),
        ("BYOL's features are more uniform with BatchNorm than without", byol, without["no BN, no MHE"]),
        ("uniformity loss makes features more uniform", panel["BYOL + Uni"], byol),
        ("MHE makes features more uniform", panel["BYOL-MHE"], byol),
        ("MHE except at the output (ours) makes features more uniform", panel["BYOL-MHE, not at the output"], byol),
        ("without BatchNorm, MHE makes features more uniform", without["no BN, MHE"], without["no BN, no MHE"]),
        ("MHE without BatchNorm is more uniform than BatchNorm", without["no BN, MHE"], byol),
        (
            "MHE except at the output (ours), without BatchNorm, is more uniform than BatchNorm",
            without["no BN, MHE, not at the output"],
            byol,
        ),
    ):
        yield Claim(f"On the circle, {sentence}.", "uniformity", more, less, None, direction=-1)


def _accuracy() -> Iterator[Claim]:
    yield _better("Uniformity loss improves linear accuracy.", _UNI, _BYOL)
    for labels, cell in _rows("tab:sections"):
        marks = zip(("encoder", "projector", "predictor"), labels[1:], strict=True)
        where = ", ".join(name for name, mark in marks if mark == "✓")
        yield _better(f"MHE of {where} improves linear accuracy.", cell, _BYOL)
    sentence = "MHE of the predictor improves k-NN accuracy (on CIFAR-10; fig:knn is of STL-10)."
    yield Claim(sentence, "k-NN", PREDICTOR_A2, BYOL, None)


def _powers() -> Iterator[Claim]:
    for (_, power), cell in _rows("tab:mhe"):
        if cell != _A2:
            yield _better(f"Power a2 is better than {power}.", _A2, cell)
        if cell not in (_A2, _S2):  # which other tables have
            yield _better(f"MHE with power {power} improves linear accuracy.", cell, _BYOL)
        if power in ("0", "1"):
            sentence = f"The power hardly matters: {power} is at most half a point behind 2."
            yield _better(sentence, cell, _S2, slack=0.5)


def _weights() -> Iterator[Claim]:
    for (weight,), cell in _rows("tab:weight"):
        if weight == "0.001":
            sentence = "MHE (s = 2) with weight 0.001 is at most half a point better than BYOL."
            yield _better(sentence, cell, _BYOL, direction=-1, slack=0.5)
            continue
        yield _better(f"MHE (s = 2) with weight {weight} improves linear accuracy.", cell, _BYOL)
        if cell != _S2:
            yield _better(
                f"The weight hardly matters: {weight} is at most half a point behind 10.", cell, _S2, slack=0.5
            )


def _batches() -> Iterator[Claim]:
    def of(method: str, batch: str) -> tuple[Cell, float]:
        return _row("tab:batch", method, batch)

    for batch in ("512", "256", "128"):
        byol, uni, mhe = (of(name, batch) for name in ("BYOL", "BYOL + Uni", "BYOL-MHE"))
        at = f"At {batch} images at once, MHE is"
        yield _better(f"{at} at most half a point behind BYOL.", mhe, byol, slack=0.5)
        if batch != "512":  # where the paper's table has it the other way round
            yield _better(f"{at} better than uniformity loss.", mhe, uni)
    for name, sentence, direction, slack in (
        ("BYOL + Uni", "From 1024 to 128 images at once, uniformity loss loses more than BYOL.", -1, 0.0),
        ("BYOL-MHE", "From 1024 to 128 images at once, MHE loses at most half a point more than BYOL.", 1, 0.5),
    ):
        (less, low), (more, high) = of(name, "128"), of(name, "1024")
        (base_less, base_low), (base_more, base_high) = of("BYOL", "128"), of("BYOL", "1024")
        effect = round((low - high) - (base_low - base_high), 2)
        yield Claim(sentence, "top-1", less, more, effect, direction, slack, beyond=(base_less, base_more))


def _without_batchnorm() -> Iterator[Claim]:
    neither, mhe = _row("tab:bn", "–", "–"), _row("tab:bn", "–", "✓")
    yield _better("Without BatchNorm, BYOL is worse.", neither, _BYOL, direction=-1)
    yield Claim("Without BatchNorm, BYOL's features are less uniform.", "uniformity", neither[0], BYOL, None)
    yield _better("Without BatchNorm, MHE avoids collapse in part.", mhe, neither)
    yield _better("MHE without BatchNorm is worse than BatchNorm.", mhe, _BYOL, direction=-1)
    sentence = "MHE without BatchNorm is more uniform than BatchNorm."
    yield Claim(sentence, "uniformity", mhe[0], BYOL, None, direction=-1)


def _energies_and_time() -> Iterator[Claim]:
    for n in range(1, 5):
        sentence = f"MHE lowers the energy of the output of stage {n}, on average over training."
        yield Claim(sentence, f"mean energy/layer{n}", ALL_A2, BYOL, None, direction=-1)
    sentence = "MHE lowers the uniformity G2 of features, on average over training (on CIFAR-10; fig:g2 is of STL-10)."
    yield Claim(sentence, "mean uniformity_of_features", ALL_A2, BYOL, None, direction=-1)
    for where, cell in (("the predictor", PREDICTOR_A2), ("all networks", ALL_A2)):
        sentence = f"MHE of {where} takes little more time."
        yield Claim(sentence, "training time, %", cell, BYOL, None, direction=-1, slack=5.0)


def _large() -> Iterator[Claim]:
    for data in ("CIFAR-10", "CIFAR-100", "STL-10"):
        byol, uni, mhe = (_row("tab:cifar", method, data) for method in ("BYOL", "BYOL + Uni", "BYOL-MHE"))
        where = f"on {data} (ResNet-50, 1000 epochs)"
        yield _better(f"BYOL + Uni is better than BYOL {where}.", uni, byol)
        yield _better(f"BYOL-MHE is better than BYOL {where}.", mhe, byol)
        if data == "STL-10":
            yield _better(f"BYOL-MHE is better than BYOL + Uni {where}.", mhe, uni)
        else:
            yield _better(f"BYOL + Uni is better than BYOL-MHE {where}.", uni, mhe)
    for table, labels, epochs, further in (
        ("tab:imagenet", (), 300, "top-5"),
        ("tab:imgnet1000", ("4096",), 1000, "k-NN"),
    ):
        for metric in ("top-1", further):
            mhe, byol = (_row(table, method, *labels, metric=metric) for method in ("BYOL-MHE", "BYOL"))
            sentence = f"BYOL-MHE is better than BYOL on ImageNet ({epochs} epochs, {metric})."
            yield _better(sentence, mhe, byol, metric=metric)


CLAIMS: tuple[Claim, ...] = (
    *_uniformity(),
    *_on_circle(),
    *_accuracy(),
    *_powers(),
    *_weights(),
    *_batches(),
    *_without_batchnorm(),
    *_energies_and_time(),
    *_large(),
)
