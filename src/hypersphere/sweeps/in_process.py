"""Runs one after the other in this process: their output is shown, and a crash ends all."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from hypersphere.errors import UserError, as_command_line
from hypersphere.sweeps.work import LOG, USER_ERROR, Work
from hypersphere.util.files import lock_folder


class Here:
    """A `Pool` that makes each run at once, when it is started. A handle holds the status of the run."""

    places = 1

    def start(self, work: Work, folder: Path) -> Any:
        try:
            with lock_folder(folder):
                work.call()
        except UserError as error:
            (folder / LOG).write_text(as_command_line(str(error)), encoding="utf-8")
            return (USER_ERROR,)
        return (0,)

    def ended(self, running: Collection[Any]) -> dict[Any, int]:
        return {handle: handle[0] for handle in running}

    def stop(self, running: Collection[Any]) -> None: ...
