"""Types of the options of `hs.pretrain` and `hs.sweep`, for editors and type checkers.

They repeat the fields of `Config` and the options of the methods; a test keeps them the same.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Literal, TypedDict

import torch

from hypersphere.train.options import Precision, Switch


class RunOptions(TypedDict, total=False):
    """Options of a run beside its method and data. `hypersphere pretrain METHOD --help` explains them."""

    holdout: Literal["validation", "test"]
    root: str | PathLike[str] | None
    labels: str | PathLike[str] | None
    white: int | None
    mean: Sequence[float]
    std: Sequence[float]
    frames: int
    size: int | None
    crop_min: float | None
    encoder: str | Callable[..., Any]
    init: str | PathLike[str] | None
    stem: Literal["cifar", "imagenet"]
    norm: Literal["batch", "group", "none"]
    freeze_patches: bool
    dimensions: int | None
    uniformity: float
    uniformity_t: float
    variance_covariance: float
    koleo: float
    sigreg: float
    spherical_mmd: float
    policy: Literal["data", "moco", "simclr", "infomin"]
    randaugment: int
    energy: float
    energy_s: float
    energy_metric: Literal["euclidean", "geodesic"]
    energy_half_space: bool
    energy_projection: int | None
    orthogonality: float
    orthogonality_kind: Literal["soft", "srip"]
    regularizer: str | Callable[..., Any] | None
    regularizer_weight: float
    energy_layers: str | Sequence[str]
    epochs: int
    batch: int
    micro_batch: int | None
    optimizer: Literal["lars", "sgd", "adamw", "muon"]
    lr: float
    warmup: int | None
    weight_decay: float
    weight_decay_end: float | None
    momentum: float
    trust: float
    clip: float | None
    seed: int
    precision: Precision
    device: str | torch.device
    kernels: Switch
    graph: Switch
    compile: Switch
    layout: Literal["auto", "channels_last", "contiguous"]
    workers: int | None
    cache: Literal["auto", "gpu", "memory", "disk", "off"]
    timeout: float
    out: str | PathLike[str] | None
    save_every: int | None
    log_every: int
    knn_every: int
    track: str | Sequence[Literal["tensorboard", "wandb", "mlflow"]]
    on_collapse: Literal["warn", "stop"]

    # options of methods
    hidden: int
    projection: int
    tau: float
    tau_end: float
    predictor: bool
    temperature: float
    bottleneck: int
    layers: int
    predictor_decays: bool
    queue: int
    jigsaw: int
    redundancy: float
    decoupled: bool
    invariance: float
    variance: float
    covariance: float
    small_crops: int
    small_side: float
    prototypes: int
    codes_queue: int
    epsilon: float
    teacher: str | PathLike[str] | None
    teacher_size: int | None
    teacher_features: int | None
    teacher_temperature: float
    teacher_warmup: int
    centre_momentum: float
    times: int
    iterations: int
    scales: int
    sharpness: float
    small_area: Sequence[float]
