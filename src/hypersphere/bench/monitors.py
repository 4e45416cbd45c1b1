"""Duration of the monitors, which measure during training, as a share of a run."""

import math

from hypersphere.bench.step import time_step
from hypersphere.bench.timing import Figures, seconds
from hypersphere.config import Config
from hypersphere.data import Dataset
from hypersphere.runs.build import build_method, plan_of
from hypersphere.runs.machine import Execution
from hypersphere.runs.monitors import monitors_of


def monitoring(config: Config, how: Execution, repeats: int = 5) -> dict[str, Figures]:
    """Seconds of each monitor: of the first call, the median of further ones, and the share of a whole run."""
    learnt, held_out = (some.to(how.device) for some in Dataset.resolve(config).split(config.holdout))
    method = build_method(config, learnt.channels, len(learnt.classes)).to(how.device).to(memory_format=how.layout)
    plan = plan_of(config, len(learnt))
    training = plan.steps * time_step(config, how, learnt)["step_ms"] / 1e3
    found: dict[str, Figures] = {}
    for monitor in monitors_of(config, method, learnt, held_out, how):
        first, *more = (seconds(lambda: monitor(method.encoder), how.device) for _ in range(1 + repeats))  # noqa: B023
        found[type(monitor).__name__] = {"first_s": first, "seconds": sorted(more)[repeats // 2]}
    times = math.ceil(config.epochs / config.knn_every)
    for figures in found.values():
        figures["share_of_training"] = (figures["first_s"] + (times - 1) * figures["seconds"]) / training
    total = {name: sum(figures[name] for figures in found.values()) for name in next(iter(found.values()))}
    return {**found, "all": {**total, "times": times, "training_s": training}}
