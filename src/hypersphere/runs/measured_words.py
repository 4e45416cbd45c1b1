"""What was measured after an epoch, in words for its line."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypersphere.evaluate import chance_of
from hypersphere.sphere.evenness import even_uniformity
from hypersphere.train import Monitor

LEGEND = (
    "k-NN: accuracy of a vote of similar images; uniformity: 0 % if all features are alike, 100 % if they are even on "
    "the sphere; rank: number of directions that features use"
)


class MeasuredWords:
    """Describes measurements of a run.

    Args:
        monitors: Those of the run, whose k-NN classifier has the labels.
        dimensions: Of the encoder's features.
        start: What k-NN at the start is called: "random encoder", or "at the start" for initial weights.
        metrics: Lines of the log so far, if the run is resumed.
    """

    def __init__(
        self,
        monitors: Sequence[Monitor],
        dimensions: int,
        start: str,
        metrics: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.dimensions, self.start = dimensions, start
        self.chance = next((chance_of(monitor.labels) for monitor in monitors if hasattr(monitor, "labels")), None)
        self.at_start = next((line["knn_at_start"] for line in metrics if "knn_at_start" in line), None)

    def __call__(self, measured: Mapping[str, float]) -> str:
        self.at_start = measured.get("knn_at_start", self.at_start)
        return ", ".join(filter(None, (self._knn(measured), self._uniformity(measured), self._rank(measured))))

    def _knn(self, measured: Mapping[str, float]) -> str:
        if "knn" not in measured or self.chance is None:
            return ""
        start = "" if self.at_start is None else f"{self.start} {self.at_start:.1f} %, "
        return f"k-NN {measured['knn']:.1f} % ({start}chance {self.chance:.1f} %)"

    def _uniformity(self, measured: Mapping[str, float]) -> str:
        if "uniformity_of_features" not in measured:
            return ""
        return f"uniformity {100 * measured['uniformity_of_features'] / even_uniformity(self.dimensions):.0f} %"

    def _rank(self, measured: Mapping[str, float]) -> str:
        rank = measured.get("effective_rank")
        return "" if rank is None else f"rank {rank:.0f} of {self.dimensions}"
