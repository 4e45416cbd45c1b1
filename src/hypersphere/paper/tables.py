"""The paper's tables, with the published numbers. Names are the paper's LaTeX labels."""

from typing import Any

from hypersphere.paper.cells import Cell, Row, Table

ALL = ("encoder", "projector", "predictor")
HEADS = ("projector", "predictor")
PREDICTOR = ("predictor",)


def mhe(layers: tuple[str, ...], s: float = 2.0, metric: str = "geodesic", weight: float = 10.0) -> dict[str, Any]:
    """Options of MHE on the given networks or layers."""
    return {"energy": weight, "energy_s": s, "energy_metric": metric, "energy_layers": layers}


# CIFAR-10, ResNet-18, 300 epochs: the defaults of the recipe, and cells that several tables share
BYOL = Cell("byol", "byol")
UNI = Cell("byol-uni", "byol-uni")
PREDICTOR_A2 = Cell("mhe-q", "byol-mhe", options=mhe(PREDICTOR))
PREDICTOR_S2 = Cell("mhe-q-s2", "byol-mhe", options=mhe(PREDICTOR, metric="euclidean"))
ALL_A2 = Cell("mhe-fgq", "byol-mhe", options=mhe(ALL))
# nothing replaces BatchNorm: torchvision's convolutions stay without biases
NO_BN = Cell("no-bn", "byol", options={"norm": "none"})
NO_BN_MHE = Cell("no-bn-mhe-fgq", "byol-mhe", options={"norm": "none", **mhe(ALL)})

_LETTERS = {"encoder": "f", "projector": "g", "predictor": "q"}
_MARK = {True: "✓", False: "–"}


def _placed(layers: tuple[str, ...]) -> Cell:
    if not layers:
        return BYOL
    if layers in (ALL, PREDICTOR):
        return ALL_A2 if layers == ALL else PREDICTOR_A2
    return Cell("mhe-" + "".join(_LETTERS[layer] for layer in layers), "byol-mhe", options=mhe(layers))


def _sections() -> tuple[Row, ...]:
    published = (90.74, 91.64, 91.36, 91.46, 91.38, 91.10, 90.96, 91.22)
    rows = []
    for number, accuracy in enumerate(published):
        chosen = [bool(number & bit) for bit in (4, 2, 1)]
        layers = tuple(layer for layer, there in zip(ALL, chosen, strict=True) if there)
        rows.append(Row(("MHE (a2)", *(_MARK[there] for there in chosen)), _placed(layers), {"top-1": accuracy}))
    return *rows, Row(("BYOL + Uni", "–", "–", "–"), UNI, {"top-1": 91.48})


def _power(label: str, s: float, metric: str, accuracy: float, spread: float | None = None) -> Row:
    shared = {("euclidean", 2.0): PREDICTOR_S2, ("geodesic", 2.0): PREDICTOR_A2}
    cell = Cell(f"mhe-q-{label if label[0] == 'a' else 's' + label}", "byol-mhe", options=mhe(PREDICTOR, s, metric))
    name = "BYOL-aMHE" if metric == "geodesic" else "BYOL-MHE"
    return Row((name, label), shared.get((metric, s), cell), {"top-1": accuracy}, spread)


def _weight(weight: float, accuracy: float) -> Row:
    options = mhe(PREDICTOR, metric="euclidean", weight=weight)
    cell = PREDICTOR_S2 if weight == 10 else Cell(f"mhe-q-s2-weight{weight:g}", "byol-mhe", options=options)
    return Row((f"{weight:g}",), cell, {"top-1": accuracy})


# tab:batch: the learning rate is "linearly scaled with the batch size", which can be read in two ways
BY_UPDATE, BY_BATCH = "scaled by 1024 (an update)", "scaled by the batch"


def _batches(label: str, whole: Cell, *accuracies: float) -> tuple[Row, ...]:
    """Rows of a method in tab:batch.

    Gradients of 1024 / B batches of B images are averaged: one update, on smaller batches. Its learning rate is that
    of 1024 images or, in the second reading, that of B images.
    """
    rows = [Row((label, "1024", BY_UPDATE), whole, {"top-1": accuracies[0]})]
    for batch, accuracy in zip((512, 256, 128), accuracies[1:], strict=True):
        smaller = {**whole.options, "micro_batch": batch}
        slower = {**smaller, "lr": 1.5 * batch / 1024}
        cells = {
            BY_UPDATE: Cell(f"{whole.name}-batch{batch}", whole.method, options=smaller),
            BY_BATCH: Cell(f"{whole.name}-batch{batch}-lr", whole.method, options=slower),
        }
        rows += [Row((label, str(batch), rate), cell, {"top-1": accuracy}) for rate, cell in cells.items()]
    return tuple(rows)


def _large(label: str, name: str, method: str, options: dict[str, Any], *accuracies: float) -> tuple[Row, ...]:
    shared = {"encoder": "torchvision/resnet50", "epochs": 1000, **options}
    if method.startswith("byol"):
        shared["tau"] = 0.996
    sets: dict[str, tuple[str, dict[str, Any]]] = {
        "cifar10": ("CIFAR-10", {"lr": 1.0}),
        "cifar100": ("CIFAR-100", {"lr": 1.0}),
        "stl10": ("STL-10", {"lr": 0.45, "stem": "imagenet"}),  # the stem is changed "for the CIFAR datasets" only
    }
    rows = []
    for (data, (shown, of_data)), accuracy in zip(sets.items(), accuracies, strict=True):
        cell = Cell(f"{data}-resnet50-{name}", method, data, {**shared, **of_data})
        rows.append(Row((label, shown), cell, {"top-1": accuracy}))
    return tuple(rows)


def _imagenet(name: str, epochs: int, batch: int, method: str = "", **options: Any) -> Cell:
    """A cell on ImageNet; `name` is the method unless that is given."""
    method = method or name
    shared: dict[str, Any] = {"encoder": "torchvision/resnet50", "stem": "imagenet", "epochs": epochs, "batch": batch}
    if epochs == 1000 and method.startswith("byol"):  # other methods as their authors have them
        shared |= {"lr": 0.2, "tau": 0.996, "weight_decay": 1.5e-6}
    return Cell(f"imagenet-{epochs}-{name}", method, "imagenet", {**shared, **options})


_IMAGENET_MHE = {
    epochs: _imagenet("mhe", epochs, batch, "byol-mhe", **mhe(ALL, weight=1.0))
    for epochs, batch in ((1000, 4096), (300, 512))
}

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table(
            "tab:imgnet1000",
            "ImageNet, ResNet-50, 1000 epochs",
            ("method", "batch"),
            (
                Row(("Supervised", "–"), _imagenet("supervised", 1000, 4096), {"top-1": 79.3, "k-NN": 79.3}),
                Row(("SimCLR", "4096"), _imagenet("simclr", 1000, 4096), {"top-1": 69.1, "k-NN": 60.7}),
                Row(("MoCo v2", "4096"), _imagenet("moco", 1000, 4096), {"top-1": 71.1, "k-NN": 61.9}),
                Row(("InfoMin", "4096"), _imagenet("infomin", 1000, 4096), {"top-1": 73.0, "k-NN": 65.3}),
                Row(("Barlow Twins", "4096"), _imagenet("barlow", 1000, 4096), {"top-1": 73.2, "k-NN": 66.0}),
                Row(("OBoW", "4096"), _imagenet("obow", 1000, 4096), {"top-1": 73.8, "k-NN": 61.9}),
                Row(("SimSiam", "256"), _imagenet("simsiam", 1000, 256), {"top-1": 71.3}),
                Row(("BYOL, as its authors have it", "4096"), None, {"top-1": 74.3, "k-NN": 64.8}),
                Row(("BYOL", "4096"), _imagenet("byol", 1000, 4096), {"top-1": 74.1, "k-NN": 63.7}),
                Row(("BYOL-MHE", "4096"), _IMAGENET_MHE[1000], {"top-1": 74.4, "k-NN": 64.9}),
            ),
        ),
        Table(
            "tab:imagenet",
            "ImageNet, ResNet-50, 300 epochs",
            ("method",),
            (
                Row(("SimCLR",), _imagenet("simclr", 300, 512), {"top-1": 67.9, "top-5": 88.5}),
                Row(("BYOL, as its authors have it",), None, {"top-1": 72.5, "top-5": 90.8}),
                Row(("BYOL",), _imagenet("byol", 300, 512), {"top-1": 71.9, "top-5": 89.2}),
                Row(("BYOL-MHE",), _IMAGENET_MHE[300], {"top-1": 72.4, "top-5": 89.9}),
            ),
        ),
        Table(
            "tab:cifar",
            "ResNet-50, 1000 epochs",
            ("method", "data"),
            (
                *_large("SimCLR", "simclr", "simclr", {}, 93.81, 70.98, 82.40),
                *_large("BYOL", "byol", "byol", {}, 94.46, 72.10, 82.81),
                *_large("BYOL + Uni", "uni", "byol-uni", {}, 94.84, 72.62, 83.19),
                *_large("BYOL-MHE", "mhe", "byol-mhe", mhe(HEADS), 94.78, 72.56, 83.96),
            ),
        ),
        Table(
            "tab:bn",
            "CIFAR-10, ResNet-18, 300 epochs: BatchNorm and MHE of all networks",
            ("BN", "MHE"),
            (
                Row(("–", "–"), NO_BN, {"top-1": 28.76}),
                Row(("✓", "–"), BYOL, {"top-1": 90.74}),
                Row(("–", "✓"), NO_BN_MHE, {"top-1": 45.72}),
                Row(("✓", "✓"), ALL_A2, {"top-1": 91.22}),
            ),
            measures=("top-1", "linear-cached", "k-NN"),  # which disagree on the sign of what MHE does without BN
        ),
        Table(
            "tab:sections",
            "CIFAR-10, ResNet-18, 300 epochs: which networks MHE regularizes",
            ("method", "encoder", "projector", "predictor"),
            _sections(),
        ),
        Table(
            "tab:weight",
            "CIFAR-10, ResNet-18, 300 epochs: weight of MHE with s = 2, predictor",
            ("weight",),
            tuple(
                _weight(weight, accuracy)
                for weight, accuracy in ((0.001, 90.74), (0.01, 91.12), (1, 91.20), (10, 91.34), (100, 91.14))
            ),
        ),
        Table(
            "tab:mhe",
            "CIFAR-10, ResNet-18, 300 epochs: power of MHE, predictor. The paper's ± is half of the range of its runs",
            ("method", "power"),
            (
                Row(("BYOL", "–"), BYOL, {"top-1": 90.74}),
                _power("0", 0, "euclidean", 91.12),
                _power("1", 1, "euclidean", 91.24),
                _power("2", 2, "euclidean", 91.34),
                _power("a0", 0, "geodesic", 91.14),
                _power("a1", 1, "geodesic", 90.94, spread=0.34),
                _power("a2", 2, "geodesic", 91.64),
            ),
        ),
        Table(
            "tab:batch",
            "CIFAR-10, ResNet-18, 300 epochs: images that are seen at once, and what the learning rate is scaled by",
            ("method", "batch", "learning rate"),
            (
                *_batches("BYOL", BYOL, 90.74, 89.10, 87.50, 85.00),
                *_batches("BYOL + Uni", UNI, 91.48, 90.22, 86.84, 82.42),
                *_batches("BYOL-MHE", PREDICTOR_A2, 91.64, 90.02, 88.10, 85.76),
            ),
        ),
    )
}
