"""Our table `steps`: whether four methods that learn little in 50 epochs lack larger steps.

By their recipes an update changes the encoder by a smaller part of its norm than one of SimCLR or BYOL does. The
options here follow the authors and solo-learn's recipes for CIFAR-10, with learning rates for runs of this length.
"""

from typing import Any

from hypersphere.paper.cells import Cell, Row, Table

EPOCHS = 50
SETTING: dict[str, Any] = {"holdout": "validation", "epochs": EPOCHS, "batch": 256, "crop_min": 0.2}
SIMSIAM: dict[str, Any] = {"weight_decay": 1e-5, "warmup": 5, "predictor_decays": False, "layers": 3}
DINO: dict[str, Any] = {"weight_decay": 1e-6, "tau": 0.99, "prototypes": 4096, "small_crops": 0, "crop_min": 0.4}
BARLOW: dict[str, Any] = {"hidden": 2048, "projection": 2048, "layers": 3, "weight_decay": 1.5e-6}
OBOW: dict[str, Any] = {"weight_decay": 5e-4, "tau": 0.98}


def _trial(method: str, lr: float, name: str = "", **options: Any) -> Row:
    cell = Cell(
        f"steps-{method}-lr{lr:g}{name}",
        method,
        options={**SETTING, "lr": lr, **options},
        probes=("linear-cached", "knn"),
    )
    return Row((method, f"{lr:g}", name.removeprefix("-")), cell, {})


LARGER_STEPS = Table(
    "steps",
    f"Four methods with larger steps than those of their recipes; CIFAR-10, ResNet-18, batch 256: learned from 45,000 "
    f"training images in {EPOCHS} epochs, measured on the other 5,000",
    ("method", "learning rate", "variant"),
    (
        _trial("simsiam", 0.5, **SIMSIAM),
        _trial("dino", 1.5, **DINO),
        _trial("barlow", 3.0, **BARLOW),
        _trial("obow", 0.5, **OBOW),
        _trial("simsiam", 0.25, **SIMSIAM),
        _trial("dino", 3.0, **DINO),
        _trial("barlow", 1.5, **BARLOW),
        _trial("simsiam", 0.03, "-batch512", batch=512, predictor_decays=False),  # what the other options do alone
        _trial("barlow", 0.001, "-adamw", optimizer="adamw", **{**BARLOW, "weight_decay": 1e-6}),
        _trial("dino", 1.5, "-multi-crop", **{**DINO, "small_crops": 4, "small_area": (0.05, 0.14), "crop_min": 0.14}),
        _trial("obow", 1.0, **OBOW),
    ),
    measures=("k-NN", "linear-cached", "uniformity"),
)
