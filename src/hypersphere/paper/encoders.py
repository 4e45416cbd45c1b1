"""Our table `encoders`: how good an encoder the chosen recipes give, for their length, on test images."""

from typing import Any

from hypersphere.paper.cells import Cell, Row, Table

PHOTOGRAPHS = {"encoder": "torchvision/resnet18", "size": 128, "optimizer": "muon", "lr": 0.004, "weight_decay": 0.01}


def _row(name: str, method: str, data: str, epochs: int, **options: Any) -> Row:
    cell = Cell(f"encoder-{name}-{epochs}", method, data, {"epochs": epochs, **options})
    return Row((data, method, str(epochs)), cell, {})


ENCODERS = Table(
    "encoders",
    "ResNet-18 with the recipe that `pretrain` chooses for photographs; Imagenette at 160 pixels, views of 128",
    ("dataset", "method", "epochs"),
    tuple(_row("imagenette", "simclr", "imagenette-160", epochs, **PHOTOGRAPHS) for epochs in (200, 800)),
    measures=("k-NN", "200-NN", "linear-cached", "top-1"),
)
