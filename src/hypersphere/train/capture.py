"""An update recorded as one CUDA graph: the GPU replays it without waiting for Python to launch each kernel."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hypersphere.errors import first_line
from hypersphere.methods import Batch
from hypersphere.util.progress import tell

Update = Callable[[Sequence[Batch], Tensor, Tensor], dict[str, Tensor]]  # batches, learning rate, progress → terms
WARM_UP = 3  # updates before the recording, in which libraries choose algorithms and state is allocated


class Captured:
    """`update`, from the fourth call on as a replay. Every call is an update: those before are done as they come.

    A replay reads its inputs from where the recording did, so they are copied there, numbers included. Where recording
    fails, for a layer that asks the GPU for a number, say, the updates go on one by one, and a line tells why.
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
            return self._aside(batches)
        self._put(batches)
        if self.graph is None and not self._record():
            return self.update(self.batches, self.lr, self.progress)
        assert self.graph is not None
        self.graph.replay()
        return self.terms

    def _aside(self, batches: Sequence[Batch]) -> dict[str, Tensor]:
        """On the stream of the recording, as it must be before one."""
        current = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            terms = self.update(batches, self.lr, self.progress)
        current.wait_stream(self.stream)
        return terms

    def _put(self, batches: Sequence[Batch]) -> None:
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
            with torch.cuda.graph(graph, stream=self.stream):
                self.terms = self.update(self.batches, self.lr, self.progress)
        except RuntimeError as error:
            self.recordable = False
            _draw_again(self.stream.device)
            tell(f"updates are launched one by one, not as a CUDA graph ({first_line(error)})")
            return False
        self.graph = graph
        return True


def _draw_again(device: torch.device) -> None:
    """A recording that broke off leaves the generator of random numbers waiting for its end: the same numbers go on in
    another state."""
    generator = torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
    generator.graphsafe_set_state(generator.clone_state())


def _copy(batch: Batch) -> Batch:
    label = None if batch.label is None else batch.label.clone()
    return Batch(tuple(view.clone() for view in batch.views), batch.sample.clone(), label)
