"""One update of a method, whole and by its stages."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from hypersphere.bench.timing import matmul_rate, milliseconds
from hypersphere.config import Config
from hypersphere.data import Images
from hypersphere.errors import UserError
from hypersphere.kernels import references_alone
from hypersphere.methods import Batch
from hypersphere.runs.build import build_method, plan_of, trainer_of, view_recipe
from hypersphere.runs.machine import Execution
from hypersphere.train import Captured, Trainer
from hypersphere.views import Views

Figures = dict[str, float]


def time_step(config: Config, how: Execution, images: Images, updates: int = 40) -> Figures:
    """Images a second of whole updates as the training loop does them, and milliseconds of their stages."""
    torch.manual_seed(config.seed)
    plan_of(config, len(images))  # does the batch fit?
    method = build_method(config, images.channels, len(images.classes)).train()
    method = method.to(how.device).to(memory_format=how.layout)
    trainer = trainer_of(config, method, how)
    views = Views(view_recipe(config), config.seed)
    sample = torch.randperm(len(images), device=how.device)[: config.batch]

    def batch() -> Batch:
        made = views.training(images.pixels, sample, 0, trainer.input_type)
        return Batch(made, sample, images.labels[sample])

    if how.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(how.device)
    seconds = _seconds_per_update(trainer, batch, updates)
    figures: dict[str, float] = {"batch": config.batch, "images_per_second": config.batch / seconds}
    figures |= {"step_ms": 1e3 * seconds, **_stages(trainer, batch)}
    if how.device.type == "cuda":
        figures["peak_gib"] = torch.cuda.max_memory_allocated(how.device) / 2**30
    flops = operations(trainer, batch())
    rate = matmul_rate(how.device, how.precision)
    figures |= {"tflop_per_step": flops / 1e12, "tflops": flops / seconds / 1e12, "matmul_tflops": rate}
    return figures | {"share_of_matmul": figures["tflops"] / rate}


def _seconds_per_update(trainer: Trainer, batch: Callable[[], Batch], updates: int) -> float:
    update = Captured(trainer.update, trainer.device) if trainer.capture else trainer.update
    for _ in range(5 if trainer.capture else 1):
        update([batch()], 0.01, 0.5)
    wait(trainer.device)
    began = time.perf_counter()
    for _ in range(updates):
        update([batch()], 0.01, 0.5)
    wait(trainer.device)
    return (time.perf_counter() - began) / updates


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


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
    """Of the networks' matrix products and convolutions, by torch's own count of the reference on a few images."""
    few = 8
    label = None if batch.label is None else batch.label[:few]
    some = Batch(tuple(view[:few] for view in batch.views), batch.sample[:few], label)
    counter = FlopCounterMode(display=False)
    with references_alone(), trainer.autocast, counter:
        trainer.method(some).loss.backward()
    trainer.optimizer.zero_grad(set_to_none=True)
    return counter.get_total_flops() * len(batch.sample) / few


def seconds_to_first_update(config: Config, patience: float = 300.0) -> float:
    """From the command line to the first line of metrics.jsonl, nothing compiled being kept from before."""
    with tempfile.TemporaryDirectory() as folder:
        out, caches = Path(folder) / "run", Path(folder) / "caches"
        words = ["pretrain", config.title, "--data", config.data, "--log-every", "1", "--out", str(out)]
        words += ["--batch", str(config.batch), "--device", config.device]
        words += ["--encoder", config.encoder, "--precision", config.precision]
        words += [] if config.root is None else ["--root", str(config.root)]
        kept = {"TRITON_CACHE_DIR": str(caches / "triton"), "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor")}
        began = time.monotonic()
        command = [sys.executable, "-m", "hypersphere", *words]
        with (
            open(Path(folder) / "told", "w+", encoding="utf-8") as told,
            subprocess.Popen(command, env={**os.environ, **kept}, stderr=told, stdout=subprocess.DEVNULL) as running,
        ):
            while running.poll() is None and time.monotonic() - began < patience:
                if _has_a_line(out / "metrics.jsonl"):
                    running.kill()
                    return time.monotonic() - began
                time.sleep(0.01)
            running.kill()
            told.seek(0)
            raise UserError(f"no first update was seen: {(told.read().strip() or 'it took too long').splitlines()[-1]}")


def _has_a_line(file: Path) -> bool:
    return file.is_file() and b"\n" in file.read_bytes()
