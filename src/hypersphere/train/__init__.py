"""Training: the loop, one update, CUDA graphs, checkpoints, the log.

Batches are passed in as a feed and measurements as monitors, so this package knows nothing of files or probes.

May import: data, distributed, errors, methods, nn, optim, util.
"""

from hypersphere.train.capture import CapturedUpdate
from hypersphere.train.checkpoint import load_checkpoint, restore, save_checkpoint
from hypersphere.train.log import Log, read_metrics
from hypersphere.train.loop import train
from hypersphere.train.plan import Plan
from hypersphere.train.record import Monitor
from hypersphere.train.stopping import RunInterrupted
from hypersphere.train.trainer import Trainer

__all__ = [
    "CapturedUpdate",
    "Log",
    "Monitor",
    "Plan",
    "RunInterrupted",
    "Trainer",
    "load_checkpoint",
    "read_metrics",
    "restore",
    "save_checkpoint",
    "train",
]
