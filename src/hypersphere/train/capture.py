"""Updates as a CUDA graph: the GPU replays one recorded update without waiting for Python."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hypersphere.errors import first_line
from hypersphere.methods import Batch
from hypersphere.util.console import notify

Update = Callable[[Sequence[Batch], Tensor, Tensor], dict[str, Tensor]]  # batches, learning rate, progress → terms
WARM_UP = 3  # updates before the recording, while libraries choose algorithms and state is allocated


class CapturedUpdate:
    """An update function that is recorded as a CUDA graph at the fourth call, and replayed from then on.

    Every call is an update. Inputs, including numbers, are copied to where the recording reads them. If recording
    fails, for example because a layer reads a value from the GPU, a message says why and updates continue one by one.

    Args:
        update: Takes (batches, learning rate, progress) and returns the terms of the loss.
        device: The GPU.

    Example:
        >>> from hypersphere.train import CapturedUpdate
        >>> update = CapturedUpdate(trainer.update, torch.device("cuda"))  # doctest: +SKIP
        >>> terms = update(batches, lr=0.1, progress=0.0)  # doctest: +SKIP
    """

    def __init__(self, update: Update, device: torch.device) -> None:
        self.update, self.calls = update, 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.recordable = True
        self.stream = torch.cuda.Stream(device)
        self.lr, self.progress = torch.zeros(2, device=device).unbind()
        self.batches: list[Batch] = []
        self.terms: dict[str, Tensor] = {}

    def __call__(self, batches: Sequence[Batch], lr: float, progress: float) -> dict[str, Tensor]:
        self.lr.fill_(lr)
        self.progress.fill_(progress)
        self.calls += 1
        if not self.recordable:
            return self.update(batches, self.lr, self.progress)
        if self.calls <= WARM_UP:
            return self._warm_up(batches)
        self._copy_in(batches)
        if self.graph is None and not self._record():
            return self.update(self.batches, self.lr, self.progress)
        assert self.graph is not None
        self.graph.replay()
        return self.terms

    def _warm_up(self, batches: Sequence[Batch]) -> dict[str, Tensor]:
        """Run an update on the stream of the recording, as required before it."""
        current = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            terms = self.update(batches, self.lr, self.progress)
        current.wait_stream(self.stream)
        return terms

    def _copy_in(self, batches: Sequence[Batch]) -> None:
        if not self.batches:
            self.batches = [_copy(batch) for batch in batches]
            return
        for held, new in zip(self.batches, batches, strict=True):
            for into, view in zip(held.views, new.views, strict=True):
                into.copy_(view)
            held.sample.copy_(new.sample)
            if held.label is not None and new.label is not None:
                held.label.copy_(new.label)

    def _record(self) -> bool:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self.stream.device)
        try:
            # other threads go on meanwhile: one copies images to pinned memory, which they may not do by default
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                self.terms = self.update(self.batches, self.lr, self.progress)
        except RuntimeError as error:
            self.recordable = False
            _reset_generator(self.stream.device)
            notify(f"updates are launched one by one, not as a CUDA graph ({first_line(error)})")
            return False
        self.graph = graph
        return True


def _reset_generator(device: torch.device) -> None:
    """Reset the random generator, which waits for the end of a failed recording, to a copy of its state."""
    generator = torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
    generator.graphsafe_set_state(generator.clone_state())


def _copy(batch: Batch) -> Batch:
    label = None if batch.label is None else batch.label.clone()
    return Batch(tuple(view.clone() for view in batch.views), batch.sample.clone(), label)
