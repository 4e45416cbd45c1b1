"""Our table `mechanism`: why MHE speeds up learning. Each cell asks one question, with runs of 100 epochs."""

from math import pi
from typing import Any, NamedTuple

from hypersphere.paper.cells import Cell, Protocol, Row, Table
from hypersphere.paper.tables import ALL, ALL_A2, BYOL, TABLES, mhe

WITHOUT_PREDICTOR = ("encoder", "projector")
# Around right angles, the energy of MHE is (2/π)² + (16/π³) · cosine + …: this weight gives the linear term of MHE with
# weight 10, and no other term.
_CENTRING = 10 * 16 / pi**3
# The learning rate of LARS does not fit SGD: use that of lightly's benchmark (0.06 for 128 images), and its decay.
_SGD: dict[str, Any] = {"optimizer": "sgd", "lr": 0.12, "weight_decay": 5e-4}

CENTRED = Cell(
    "mechanism-centred",
    "byol",
    options={
        "regularizer": "hypersphere.regularize:MeanDirectionRegularizer",
        "regularizer_weight": round(_CENTRING, 2),
        "energy_layers": ALL,
    },
)
TAU = Cell("mechanism-tau98", "byol", options={"tau": 0.98})
RATE = Cell("mechanism-lr3", "byol", options={"lr": 3.0})
SGD = Cell("mechanism-sgd", "byol", options=_SGD)
SGD_MHE = Cell("mechanism-sgd-mhe-fg", "byol-mhe", options={**_SGD, **mhe(WITHOUT_PREDICTOR)})
NO_PREDICTOR = Cell("mechanism-no-predictor", "byol", options={"predictor": False})
NO_PREDICTOR_MHE = Cell(
    "mechanism-no-predictor-mhe-fg", "byol-mhe", options={"predictor": False, **mhe(WITHOUT_PREDICTOR)}
)
(MHE_FG,) = (cell for cell in TABLES["tab:sections"].cells if cell.name == "mhe-fg")


class Question(NamedTuple):
    """A question that the difference `cell` − `baseline` answers."""

    sentence: str
    cell: Cell
    baseline: Cell


QUESTIONS = (
    Question("Is MHE centring? Neurons are pushed from their mean direction only.", CENTRED, BYOL),
    Question("What does MHE of all networks add to centring?", ALL_A2, CENTRED),
    Question("Does a target that follows faster do the same?", TAU, BYOL),
    Question("Does twice the learning rate do the same?", RATE, BYOL),
    Question("Is it LARS's trust ratio? MHE of encoder and projector under SGD.", SGD_MHE, SGD),
    Question("The same comparison under LARS.", MHE_FG, BYOL),
    Question("Does BYOL collapse without its predictor?", NO_PREDICTOR, BYOL),
    Question("Can MHE replace the predictor?", NO_PREDICTOR_MHE, NO_PREDICTOR),
)

MECHANISM = Table(
    "mechanism",
    "CIFAR-10, ResNet-18, 100 epochs (ours): what MHE does, one question for each cell",
    ("question", "cell"),
    (
        Row(("Baseline: BYOL.", BYOL.name), BYOL, {}),
        Row(("Baseline: BYOL with SGD.", SGD.name), SGD, {}),
        *(Row((question.sentence, question.cell.name), question.cell, {}) for question in QUESTIONS),
    ),
    measures=("top-1", "k-NN", "uniformity"),
    protocol=Protocol(epochs=100),
)
