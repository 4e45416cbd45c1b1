"""Results of many runs as records, for tables and plots of your own."""

import os
from pathlib import Path
from typing import Any

from hypersphere.errors import UserError
from hypersphere.runs.results import Result, read_results
from hypersphere.util.optional import require


def load_results(folder: str | os.PathLike[str] = "results", *, as_frame: bool = False) -> Any:
    """Load the results of a sweep or of the paper's tables, one record per run.

    Args:
        folder: A folder of results (`results/` of `reproduce`), or of a sweep, which has them in `results`.
        as_frame: Whether to return a pandas DataFrame.

    Returns:
        A list of dictionaries, or a DataFrame with them as rows, in the order of the names of the files. `cell`,
        `title`, `hash`, `seconds`, `diverged` and `file` describe a run; its options have their own names, such as
        `lr`; measures are `PROBE/MEASURE`, such as `linear/top1` and `sphere/uniformity`; `history` is a list of what
        was measured during training.

    Raises:
        UserError: If there are no results, a file is damaged, or pandas is not installed for `as_frame`.

    Example:
        >>> import hypersphere as hs
        >>> runs = hs.sweep("byol", "digits", over={"seed": [0, 1]}, epochs=1, hidden=8, probes=["knn"], workers=0)
        >>> [(record["seed"], record["title"], "knn/top1" in record) for record in hs.load_results("runs/sweep")]
        [(0, 'byol', True), (1, 'byol', True)]
    """
    path = Path(folder)
    if not path.is_dir():
        raise UserError(f"{path} does not exist: expected the folder of a sweep, or of results")
    inside = path / "results"
    results = read_results(path) if any(path.glob("*.json")) or not inside.is_dir() else read_results(inside)
    if not results:
        raise UserError(f"{path} has no results: expected the folder of a sweep, or of results")
    records = [_record(result) for result in results]
    if not as_frame:
        return records
    return require("pandas", "`as_frame`", "pandas").DataFrame(records)


def _record(result: Result) -> dict[str, Any]:
    config = result.config
    about = {"cell": result.cell, "title": config.title, "hash": result.hash, "seconds": result.seconds}
    about |= {"diverged": result.diverged, "file": result.file}
    measures = {
        f"{probe}/{measure}": value for probe, values in result.evaluation.items() for measure, value in values.items()
    }
    return about | config.to_json() | measures | {"history": result.history}
