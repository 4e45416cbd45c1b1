"""The paper's figures: which runs they show. What is drawn is in `report.plots`."""

from dataclasses import dataclass
from typing import Any, Literal

from hypersphere.paper.cells import Cell
from hypersphere.paper.tables import ALL, ALL_A2, BYOL, PREDICTOR_A2, TABLES, UNI, mhe

Kind = Literal["circle", "blocks", "dynamics", "curve", "batch"]


@dataclass(frozen=True)
class Figure:
    name: str
    caption: str
    kind: Kind
    panels: tuple[tuple[str, Cell], ...]  # title or legend, and the runs

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(dict.fromkeys(cell for _, cell in self.panels))


def _circle(name: str, method: str = "byol", **options: Any) -> Cell:
    """AlexNet with two outputs, trained as such. The paper does not say for how long: 100 epochs."""
    shape = {"encoder": "hypersphere/alexnet", "dimensions": 2, "epochs": 100}
    return Cell(f"circle-{name}", method, options={**shape, **options})


# MHE of all layers is the paper's. Two neurons have least energy when they are opposite: then the output (z, −z) has
# two directions only. And the 4096 neurons of the projector's first layer are crowded on a circle, too: their energy
# outweighs all else. So it was seen in the first seed, and a variant of ours leaves these two layers out.
NOT_OUTPUT = ("encoder.features", "encoder.head", "projector.[1-9]*", "predictor")
RANDOM = Cell("circle-random", "byol", options=_circle("random").options, trained=False, probes=("knn",))
_PLAIN, _REGULARIZED = _circle("byol"), _circle("mhe", "byol-mhe", **mhe(ALL))
_NOT_OUTPUT = _circle("mhe-hidden", "byol-mhe", **mhe(NOT_OUTPUT))
_TWO_NEURONS = (
    "MHE of all layers, as the paper says it, drives the two neurons of the output apart until they are opposite, and "
    "all features into two directions; *not at the output* is a variant of ours, thought of after that was seen: it "
    "leaves out the layers before and after the two outputs"
)
_SHOWN = "the first seed is shown, G2 is the mean over n; dashed: evenly spread"
_SAID = "of CIFAR-10 where the paper shows STL-10"
_WATCHED = "training images (the test set is for the end)"

FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure(
            "fig:uni",
            "Features of the CIFAR-10 test images on the circle: Gaussian density in the plane, von Mises–Fisher "
            f"density of the angles; AlexNet with two outputs, 100 epochs; {_SHOWN}. {_TWO_NEURONS}",
            "circle",
            (
                ("random encoder", RANDOM),
                ("contrastive (SimCLR)", _circle("simclr", "simclr")),
                ("BYOL", _PLAIN),
                ("BYOL + Uni", _circle("uni", "byol-uni")),
                ("BYOL-MHE", _REGULARIZED),
                ("BYOL-MHE, not at the output", _NOT_OUTPUT),
            ),
        ),
        Figure(
            "fig:pca",
            f"Features on the circle with and without BatchNorm and MHE; {_SHOWN}. MHE as in fig:uni",
            "circle",
            (
                ("no BN, no MHE", _circle("no-bn", norm="none")),
                ("BN, no MHE", _PLAIN),
                ("no BN, MHE", _circle("no-bn-mhe", "byol-mhe", norm="none", **mhe(ALL))),
                ("BN, MHE", _REGULARIZED),
                (
                    "no BN, MHE, not at the output",
                    _circle("no-bn-mhe-hidden", "byol-mhe", norm="none", **mhe(NOT_OUTPUT)),
                ),
                ("BN, MHE, not at the output", _NOT_OUTPUT),
            ),
        ),
        Figure(
            "fig:layer_uniformity_mhe",
            f"Hyperspherical energy (a2) of the pooled outputs of each ResNet-18 stage, of 1024 {_WATCHED}",
            "blocks",
            (("BYOL", BYOL), ("BYOL-MHE, all networks", ALL_A2)),
        ),
        Figure(
            "fig:g2",
            f"Uniformity G2 of features of 5,000 {_WATCHED}; the MHE objective, energy (a2) of all weights; {_SAID}",
            "dynamics",
            (("BYOL", BYOL), ("BYOL-MHE, all networks", ALL_A2)),
        ),
        Figure(
            "fig:knn",
            f"k-NN accuracy during training, of 5,000 images by neighbours among 45,000 others, {_WATCHED}; {_SAID}",
            "curve",
            (("BYOL", BYOL), ("BYOL + Uni", UNI), ("BYOL-MHE, predictor", PREDICTOR_A2)),
        ),
        Figure(
            "fig:batch",
            "Linear accuracy lost when fewer images are seen at once",
            "batch",
            tuple((" ".join(row.labels), row.cell) for row in TABLES["tab:batch"].rows if row.cell is not None),
        ),
    )
}
