"""The paper's figures as data: which runs they show. `report.plots` draws them."""

from dataclasses import dataclass
from typing import Any, Literal

from hypersphere.paper.cells import Cell
from hypersphere.paper.tables import ALL, ALL_A2, BY_BATCH, BYOL, HEADS, PREDICTOR_A2, TABLES, UNI, mhe

Kind = Literal["circle", "blocks", "dynamics", "curve", "batch"]


@dataclass(frozen=True)
class Figure:
    """A figure of the paper.

    Attributes:
        name: The paper's LaTeX label.
        caption: What it shows.
        kind: How it is drawn.
        panels: Titles, each with the runs that it shows.
        optional: Titles without which it can be drawn.
    """

    name: str
    caption: str
    kind: Kind
    panels: tuple[tuple[str, Cell], ...]
    optional: frozenset[str] = frozenset()

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Its cells, each once."""
        return tuple(dict.fromkeys(cell for _, cell in self.panels))

    @property
    def needed(self) -> tuple[Cell, ...]:
        """Cells that must have run before it is drawn."""
        return tuple(dict.fromkeys(cell for title, cell in self.panels if title not in self.optional))


def _circle(name: str, method: str = "byol", **options: Any) -> Cell:
    """AlexNet with two outputs. The paper does not give the length of training: 100 epochs here."""
    shape = {"encoder": "hypersphere/alexnet", "dimensions": 2, "epochs": 100}
    return Cell(f"circle-{name}", method, options={**shape, **options})


# The appendix regularizes projector and predictor ("g and q unless stated otherwise"). Two variants are ours. MHE of
# all layers includes the two neurons of the output, which have least energy if they are opposite: then the output
# (z, −z) has two directions only. The 4096 neurons of the projector's first layer lie on a circle, too, and their
# energy outweighs all else. We saw this in the first seed; the second variant leaves out these two layers.
NOT_OUTPUT = ("encoder.features", "encoder.head", "projector.[1-9]*", "predictor")
RANDOM = Cell("circle-random", "byol", options=_circle("random").options, trained=False, probes=("knn",))
_PLAIN, _HEADS = _circle("byol"), _circle("mhe-gq", "byol-mhe", **mhe(HEADS))
_ALL = _circle("mhe", "byol-mhe", **mhe(ALL))
_NOT_OUTPUT = _circle("mhe-hidden", "byol-mhe", **mhe(NOT_OUTPUT))
_NO_BN = {
    name: _circle(f"no-bn-{name}", "byol-mhe", norm="none", **mhe(layers))
    for name, layers in (("mhe-gq", HEADS), ("mhe", ALL), ("mhe-hidden", NOT_OUTPUT))
}
_VARIANTS = (
    "BYOL-MHE regularizes projector and predictor, as the appendix says. *All layers* and *not at the output* are "
    "variants of ours: MHE of all layers drives the two neurons of the output apart until they are opposite, and all "
    "features into two directions; the other leaves out the layers before and after the two outputs (we added it after "
    "seeing that). In all but the last, the projector's first layer has 4096 neurons in the plane: their energy is "
    "about 1,800, and outweighs the loss"
)
(HEADS_A2,) = (cell for cell in TABLES["tab:sections"].cells if cell.name == "mhe-gq")
_SHOWN = "the first seed is shown, G2 is the mean over n; dashed: evenly spread"
_DATA = "of CIFAR-10 where the paper shows STL-10"
_LAYERS = "BYOL-MHE regularizes projector and predictor, as the appendix says"
_IMAGES = "training images (the test set is for the end)"

_BATCHES = tuple((", ".join(row.labels), row.cell) for row in TABLES["tab:batch"].rows if row.cell is not None)

FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure(
            "fig:uni",
            "Features of the CIFAR-10 test images on the circle: Gaussian density in the plane, von Mises–Fisher "
            f"density of the angles; AlexNet with two outputs, 100 epochs; {_SHOWN}. {_VARIANTS}",
            "circle",
            (
                ("random encoder", RANDOM),
                ("contrastive (SimCLR)", _circle("simclr", "simclr")),
                ("BYOL", _PLAIN),
                ("BYOL + Uni", _circle("uni", "byol-uni")),
                ("BYOL-MHE", _HEADS),
                ("BYOL-MHE, all layers", _ALL),
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
                ("no BN, MHE", _NO_BN["mhe-gq"]),
                ("BN, MHE", _HEADS),
                ("no BN, MHE, all layers", _NO_BN["mhe"]),
                ("BN, MHE, all layers", _ALL),
                ("no BN, MHE, not at the output", _NO_BN["mhe-hidden"]),
                ("BN, MHE, not at the output", _NOT_OUTPUT),
            ),
        ),
        Figure(
            "fig:layer_uniformity_mhe",
            f"Hyperspherical energy (a2) of the pooled outputs of each ResNet-18 stage, of 1024 {_IMAGES}; {_LAYERS}",
            "blocks",
            (("BYOL", BYOL), ("BYOL-MHE", HEADS_A2), ("BYOL-MHE, all networks (ours)", ALL_A2)),
            optional=frozenset({"BYOL-MHE, all networks (ours)"}),
        ),
        Figure(
            "fig:g2",
            f"Uniformity G2 of features of 5,000 {_IMAGES}; the MHE objective, energy (a2) of all weights; {_DATA}; "
            f"{_LAYERS}",
            "dynamics",
            (("BYOL", BYOL), ("BYOL-MHE", HEADS_A2), ("BYOL-MHE, all networks (ours)", ALL_A2)),
            optional=frozenset({"BYOL-MHE, all networks (ours)"}),
        ),
        Figure(
            "fig:knn",
            f"k-NN accuracy during training, of 5,000 images by neighbours among 45,000 others, {_IMAGES}; {_DATA}",
            "curve",
            (("BYOL", BYOL), ("BYOL + Uni", UNI), ("BYOL-MHE, predictor", PREDICTOR_A2)),
        ),
        Figure(
            "fig:batch",
            "Linear accuracy lost when fewer images are seen at once, published and by two readings of the learning "
            "rate; the mean of each cell's seeds less that of 1024 images",
            "batch",
            _BATCHES,
            optional=frozenset(title for title, _ in _BATCHES if title.endswith(BY_BATCH)),
        ),
    )
}
