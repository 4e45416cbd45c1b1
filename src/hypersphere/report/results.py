"""Writes RESULTS.md and its figures."""

import os
from importlib.util import find_spec
from pathlib import Path

from hypersphere.paper.catalogue import all_protocols
from hypersphere.paper.evidence import Evidence
from hypersphere.paper.verdict import Judge
from hypersphere.report.forest_plot import draw_forest
from hypersphere.report.markdown import results_page
from hypersphere.report.plots import draw_figures
from hypersphere.report.summary import main_claims
from hypersphere.runs.results import read_results
from hypersphere.util.console import notify_once
from hypersphere.util.files import write_atomically


def write_page(results: Path, page: Path) -> None:
    """Write the page of all results, and its figures if matplotlib is installed.

    Args:
        results: Folder of the results; figures are written to `figures` in it.
        page: The page to write.
    """
    evidence = Evidence(read_results(results))
    figures: dict[str, str] = {}
    if find_spec("matplotlib") is None:
        notify_once(f"{page} is written without figures, which need matplotlib: pip install matplotlib")
    else:
        drawn = draw_figures(evidence, results / "figures")
        if evidence.results:
            drawn["forest"] = _forest(evidence, results / "figures")
        figures = {name: os.path.relpath(path, page.parent) for name, path in drawn.items()}
    write_atomically(page, results_page(evidence, figures=figures).encode())


def _forest(evidence: Evidence, folder: Path) -> Path:
    judge, protocols = Judge(evidence), all_protocols(evidence)
    return draw_forest(main_claims(judge, protocols), protocols, folder)
