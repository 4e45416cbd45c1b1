"""Our table `muon`: which method learns most from CIFAR-10 with Muon, with the crops and batches that suit BYOL."""

from typing import Any

from hypersphere.paper.cells import Cell, Row, Table

EPOCHS = 50
SETTING: dict[str, Any] = {
    "holdout": "validation",
    "epochs": EPOCHS,
    "crop_min": 0.2,
    "batch": 256,
    "optimizer": "muon",
    "weight_decay": 0.01,
}


def _trial(method: str, lr: float, **options: Any) -> Row:
    changed = "".join(f"-{name}{value:g}" for name, value in options.items())
    target = {"tau_end": 0.99} if method.startswith("byol") else {}
    cell = Cell(
        f"muon-{method}-lr{lr:g}{changed}",
        method,
        options={**SETTING, **target, "lr": lr, **options},
        probes=("linear-cached", "knn"),
    )
    return Row((method, ", ".join(f"{name} {value}" for name, value in {"lr": lr, **options}.items())), cell, {})


MUON = Table(
    "muon",
    f"CIFAR-10, ResNet-18, Muon, crops of at least a fifth of the image, batch 256: learned from 45,000 images in "
    f"{EPOCHS} epochs, measured on the other 5,000. The target network of BYOL follows faster (tau_end 0.99)",
    ("method", "options"),
    (
        _trial("byol", 0.004),
        _trial("simclr", 0.004),
        _trial("byol-uni", 0.004),
        _trial("byol", 0.01),
        _trial("simclr", 0.01),
        _trial("byol-uni", 0.01),
        _trial("simclr", 0.004, temperature=0.2),
        _trial("simclr-uni", 0.004),
        _trial("swav", 0.004),
        _trial("vicreg", 0.004),
        _trial("barlow", 0.004),
        _trial("moco", 0.004),
        _trial("byol", 0.002),
        _trial("simclr", 0.004, batch=512),
        _trial("byol", 0.004, batch=512),
        _trial("byol", 0.004, weight_decay=0.05),
        _trial("byol-mhe", 0.004),
        _trial("simclr-mhe", 0.004),
    ),
    measures=("linear-cached", "k-NN", "uniformity"),
)
