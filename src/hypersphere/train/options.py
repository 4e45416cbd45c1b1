"""Options of a run that concern the training loop: its length, how it is computed, and what it writes."""

from dataclasses import dataclass
from typing import Literal

from hypersphere.util.option_fields import check, option

Precision = Literal["auto", "float32", "bfloat16", "float16"]
Switch = Literal["auto", "on", "off"]


@dataclass(frozen=True)
class TrainingOptions:
    """Length, precision and output of the training."""

    epochs: int = option(300, least=1)
    """Passes over the images."""
    batch: int = option(1024, least=2)
    """Images per step."""
    micro_batch: int | None = option(None, least=2)
    """Images computed at once; gradients add up to those of a batch (None: the batch). BatchNorm, SimCLR's negatives
    and the uniformity loss see only these."""
    seed: int = option(0, least=0, below=2**32)
    """Seed of weights, order of images and views."""
    precision: Precision = option("auto", hashed=False)
    """Precision of the networks; auto: bfloat16 on a GPU that supports it, else float32."""
    device: str = option("auto", hashed=False)
    """Device: cpu, cuda, cuda:1, mps; auto: the GPU if there is one."""
    kernels: Switch = option("auto", hashed=False)
    """Fused Triton kernels; auto: on a GPU if Triton is installed. off: the reference operations."""
    graph: Switch = option("auto", hashed=False)
    """Record a step as a CUDA graph and replay it; auto: on a GPU, except with float16."""
    compile: Switch = option("auto", hashed=False)
    """torch.compile the method, which takes a minute at the start: for encoders without kernels here. auto: in
    runs of 5,000 steps or more of transformers of timm or torchvision on photographs, on one GPU with kernels."""
    layout: Literal["auto", "channels_last", "contiguous"] = option("auto", hashed=False)
    """Memory layout of images; auto: channels_last on a GPU."""
    timeout: float = option(600.0, above=0, hashed=False)
    """Seconds to wait for a rank that does not answer before all ranks stop."""
    save_every: int | None = option(None, least=1, hashed=False)
    """Steps between checkpoints (None: two minutes); one is also written at the end and on Ctrl-C."""
    log_every: int = option(10, least=1, hashed=False)
    """Steps between lines of metrics.jsonl."""
    knn_every: int = option(10, least=0, hashed=False)
    """Epochs between measurements of k-NN accuracy and others on held-out images; if these are the test set, on some
    training images. The first and the last epoch are measured, too (0: never)."""
    track: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = option((), hashed=False)
    """Services that get a copy of metrics.jsonl: Weights & Biases, MLflow; TensorBoard does if it is installed."""
    on_collapse: Literal["warn", "stop"] = option("warn", hashed=False)
    """Whether a run warns or stops if the features collapse."""

    def __post_init__(self) -> None:
        divides = self.micro_batch is None or self.batch % self.micro_batch == 0
        check(self, "micro_batch", divides, f"a divisor of `batch` {self.batch}")
