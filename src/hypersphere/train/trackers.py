"""Copies of the log at Weights & Biases or MLflow. Whatever happens to them, the run goes on."""

import contextlib
import os
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from hypersphere.errors import UserError, first_line
from hypersphere.util.console import notify
from hypersphere.util.files import write_json
from hypersphere.util.records import read_record

Track = Literal["tensorboard", "wandb", "mlflow"]
PROJECT = "hypersphere"  # unless $WANDB_PROJECT or $MLFLOW_EXPERIMENT_NAME names another
IDS = "tracking.json"  # in a run's folder: its name at each service, with which a resumed run continues


def check_trackers(names: Sequence[Track]) -> None:
    """Raise a `UserError` if the package of a tracker is not installed."""
    for name in names:
        if find_spec(name) is None:
            raise UserError(f"`track` {name} needs a package: pip install {name}")


class Tracker(ABC):
    """One service. Its methods may raise anything.

    Args:
        folder: The run's folder; its name is the run's name at the service.
        options: All options of the run.
        id: The run's id at the service, if it was tracked there before.
    """

    id: str  # for `IDS`

    @abstractmethod
    def __init__(self, folder: Path, options: Mapping[str, Any], id: str | None) -> None: ...

    @abstractmethod
    def write(self, step: int, values: Mapping[str, float]) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class WandbTracker(Tracker):
    """Weights & Biases. $WANDB_MODE offline writes files in the run's folder, for `wandb sync`."""

    def __init__(self, folder: Path, options: Mapping[str, Any], id: str | None) -> None:
        import wandb  # type: ignore[import-not-found,unused-ignore]

        self.id = id or secrets.token_hex(4)
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=folder.name,
            id=self.id,
            dir=folder,
            config=dict(options),
            resume="allow",
            settings=wandb.Settings(console="off", silent=True),
        )
        self.run.define_metric("*", step_metric="step")  # its own step cannot go back, as a resumed run does

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log({"step": step, **values})

    def close(self) -> None:
        self.run.finish()


class MlflowTracker(Tracker):
    """MLflow, at $MLFLOW_TRACKING_URI, else where MLflow writes by default in this folder."""

    def __init__(self, folder: Path, options: Mapping[str, Any], id: str | None) -> None:
        from mlflow import MlflowClient  # type: ignore[import-not-found,unused-ignore]
        from mlflow.entities import Metric, Param  # type: ignore[import-not-found,unused-ignore]

        self.client, self.metric = MlflowClient(), Metric
        if id is not None:
            self.id = id
            self.client.update_run(self.id, status="RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        known = self.client.get_experiment_by_name(name)
        experiment = self.client.create_experiment(name) if known is None else known.experiment_id
        self.id = self.client.create_run(experiment, run_name=folder.name).info.run_id
        params = [Param(option, str(value)) for option, value in options.items()]
        self.client.log_batch(self.id, params=params)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        metrics = [self.metric(name, float(value), now, step) for name, value in values.items()]
        self.client.log_batch(self.id, metrics=metrics)

    def close(self) -> None:
        self.client.set_terminated(self.id)


TRACKERS: dict[str, type[Tracker]] = {"wandb": WandbTracker, "mlflow": MlflowTracker}


class Trackers:
    """All trackers of a run. One that fails is reported once, and left out from then on.

    Args:
        names: Those to use. "tensorboard" is written by `Log`.
        folder: The run's folder.
        options: All options of the run.
    """

    def __init__(self, names: Sequence[Track], folder: Path, options: Mapping[str, Any]) -> None:
        self.active: dict[str, Tracker] = {}
        ids = _read_ids(folder)
        for name in dict.fromkeys(names):
            if name in TRACKERS:
                self._try(name, partial(self._begin, name, folder, options, ids.get(name)))
        if self.active:
            with contextlib.suppress(UserError):  # the log itself reports a full disk
                write_json(folder / IDS, {**ids, **{name: tracker.id for name, tracker in self.active.items()}})

    def _begin(self, name: str, folder: Path, options: Mapping[str, Any], id: str | None) -> None:
        self.active[name] = TRACKERS[name](folder, options, id)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Send some numbers of a step."""
        for name, tracker in [*self.active.items()]:
            self._try(name, partial(tracker.write, step, values))

    def close(self) -> None:
        """Finish the run at every service."""
        for name, tracker in [*self.active.items()]:
            self._try(name, tracker.close)

    def _try(self, name: str, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # whatever a service's library raises
            self.active.pop(name, None)
            notify(f"{name} failed, and is left out from here on: {first_line(error)}")


def _read_ids(folder: Path) -> dict[str, str]:
    with contextlib.suppress(UserError, OSError):
        if (folder / IDS).is_file():
            return read_record(folder / IDS, dict[str, str])
    return {}
