"""Duration of one update of a method, whole and by stage."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from hypersphere.bench.timing import Figures, matmul_rate, milliseconds, seconds
from hypersphere.config import Config
from hypersphere.data import Images
from hypersphere.errors import UserError
from hypersphere.kernels import without_kernels
from hypersphere.methods import Batch
from hypersphere.runs.build import COMPILED_FROM, build_method, plan_of, trainer_of, view_pipeline
from hypersphere.runs.machine import Execution
from hypersphere.train import CapturedUpdate, Trainer
from hypersphere.views import Views

Update = Callable[[list[Batch], float, float], dict[str, torch.Tensor]]


def build(config: Config, how: Execution, channels: int, classes: int) -> tuple[Trainer, Update]:
    """The trainer of a long run, and its update as the training loop calls it: captured as a CUDA graph if possible."""
    method = build_method(config, channels, classes).to(how.device).to(memory_format=how.layout).train()
    trainer = trainer_of(config, method, how, updates=COMPILED_FROM)
    return trainer, CapturedUpdate(trainer.update, how.device) if trainer.capture else trainer.update


def time_step(config: Config, how: Execution, images: Images, updates: int = 40) -> Figures:
    """Time updates as the training loop makes them, and each of their stages.

    Args:
        config: Config of the run.
        how: Device and precision.
        images: Training images, on the device.
        updates: Number of updates to time.
    """
    torch.manual_seed(config.seed)
    plan_of(config, len(images))  # raises an error if the batch is too large
    trainer, update = build(config, how, images.channels, len(images.classes))
    trainer.method.start_trial(len(images))
    views = Views(view_pipeline(config), config.seed)
    sample = torch.randperm(len(images), device=how.device)[: config.batch]

    def batch() -> Batch:
        made = views.training(images.pixels, sample, 0, trainer.input_type)
        return Batch(made, sample, images.labels[sample])

    if how.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(how.device)
    for _ in range(5 if trainer.capture else 1):  # warm up
        update([batch()], 0.01, 0.5)
    each = seconds(lambda: update([batch()], 0.01, 0.5), how.device, updates) / updates
    figures = {"batch": config.batch, "images_per_second": config.batch / each, "step_ms": 1e3 * each}
    figures |= {"compiled": 1} if trainer.compiled else {}
    figures |= _stages(trainer, batch)
    if how.device.type == "cuda":
        figures["peak_gib"] = torch.cuda.max_memory_allocated(how.device) / 2**30
    flops = operations(trainer, batch())
    rate = matmul_rate(how.device, how.precision)
    figures |= {"tflop_per_step": flops / 1e12, "tflops": flops / each / 1e12, "matmul_tflops": rate}
    return figures | {"share_of_matmul": figures["tflops"] / rate}


def _stages(trainer: Trainer, batch: Callable[[], Batch]) -> Figures:
    method, device, held = trainer.method, trainer.device, batch()
    repeats = 20 if device.type == "cuda" else 3
    weights = [p for p in method.parameters() if p.requires_grad]

    def forward() -> torch.Tensor:
        with trainer.autocast:
            return trainer.loss_of(held).loss

    def both() -> None:
        torch.autograd.grad(forward(), weights, allow_unused=True)

    def finish() -> None:
        trainer.optimizer.step()
        method.after_step(progress)

    def regularize() -> None:
        assert trainer.regularizer is not None
        torch.autograd.grad(trainer.regularizer(), weights, allow_unused=True)

    progress = torch.tensor(0.5, device=device)
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    found = {"views_ms": milliseconds(batch, device, repeats), "forward_ms": milliseconds(forward, device, repeats)}
    found["backward_ms"] = milliseconds(both, device, repeats) - found["forward_ms"]
    found["update_ms"] = milliseconds(finish, device, repeats)
    if trainer.regularizer is not None:
        found["regularizer_ms"] = milliseconds(regularize, device, repeats)
    trainer.optimizer.zero_grad(set_to_none=True)
    return found


def operations(trainer: Trainer, batch: Batch) -> float:
    """Floating-point operations of an update's matrix products and convolutions.

    torch counts them in the reference implementation, on a few images of the batch.
    """
    few = 8
    label = None if batch.label is None else batch.label[:few]
    some = Batch(tuple(view[:few] for view in batch.views), batch.sample[:few], label)
    counter = FlopCounterMode(display=False)
    with without_kernels(), trainer.autocast, counter:
        trainer.method(some).loss.backward()
    trainer.optimizer.zero_grad(set_to_none=True)
    return counter.get_total_flops() * len(batch.sample) / few


def seconds_to_first_update(config: Config, caches: Path, patience: float = 300.0) -> float:
    """Seconds from the start of the command to the first line of metrics.jsonl.

    Args:
        config: Config of the run.
        caches: Folder of compiled kernels: empty at first, filled by the run.
        patience: Seconds to wait.

    Raises:
        UserError: If the command fails, or takes longer than `patience`.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        words = ["pretrain", config.title, "--data", config.data, "--log-every", "1", "--out", str(out)]
        words += ["--batch", str(config.batch), "--device", config.device]
        words += ["--encoder", config.encoder, "--precision", config.precision]
        words += [] if config.root is None else ["--root", str(config.root)]
        kept = {"TRITON_CACHE_DIR": str(caches / "triton"), "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor")}
        began = time.monotonic()
        command = [sys.executable, "-m", "hypersphere", *words]
        with (
            open(Path(folder) / "errors", "w+", encoding="utf-8") as errors,
            subprocess.Popen(command, env={**os.environ, **kept}, stderr=errors, stdout=subprocess.DEVNULL) as running,
        ):
            while running.poll() is None and time.monotonic() - began < patience:
                if _has_line(out / "metrics.jsonl"):
                    running.kill()
                    return time.monotonic() - began
                time.sleep(0.01)
            running.kill()
            errors.seek(0)
            reason = (errors.read().strip() or f"it took more than {patience:.0f} s").splitlines()[-1]
            raise UserError(f"the first update failed: {reason}")


def _has_line(file: Path) -> bool:
    return file.is_file() and b"\n" in file.read_bytes()
