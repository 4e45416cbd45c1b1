"""A table in RESULTS.md: how much energy MHE removes from each network, and how much accuracy it gains."""

from collections.abc import Iterable
from statistics import fmean

from hypersphere.paper.cells import Cell, Protocol
from hypersphere.paper.claims import NETWORKS
from hypersphere.paper.evidence import Evidence
from hypersphere.paper.tables import BYOL, TABLES
from hypersphere.report.markdown_blocks import pipe_table
from hypersphere.report.templating import render_text


def dose_table(evidence: Evidence) -> str:
    """The table, by the protocol that has the most cells; empty if BYOL or all other cells have not run."""
    cells = [*dict.fromkeys((*TABLES["tab:weight"].cells, *TABLES["tab:sections"].cells))]
    protocols = [p for p in evidence.protocols(cells) if evidence.of(BYOL, p)]
    if not protocols:
        return ""
    protocol = max(protocols, key=lambda p: sum(bool(evidence.of(cell, p)) for cell in cells))
    energies = {cell: _energies(evidence, cell, protocol) for cell in cells}
    known = {cell: energy for cell, energy in energies.items() if len(energy) == len(NETWORKS)}
    if BYOL not in known or len(known) < 2:
        return ""
    header = ("cell", *(f"{network}: removed" for network in NETWORKS), "top-1 gained", "effective rank")
    table = "\n".join(pipe_table(header, _rows(evidence, known, protocol)))
    return render_text("dose.md", protocol=protocol, table=table) + "\n"


def _rows(evidence: Evidence, known: dict[Cell, list[float]], protocol: Protocol) -> Iterable[Iterable[str]]:
    byol, least = known[BYOL], [min(column) for column in zip(*known.values(), strict=True)]
    for cell, energy in known.items():
        removed = [
            f"{100 * (at_byol - now) / (at_byol - low):.1f} %" if at_byol > low else "–"
            for at_byol, now, low in zip(byol, energy, least, strict=True)
        ]
        gained = _mean(evidence, cell, "top-1", protocol) - _mean(evidence, BYOL, "top-1", protocol)
        rank = _mean(evidence, cell, "effective rank", protocol)
        yield cell.name, *removed, f"{gained:+z.2f}", f"{rank:.0f}"


def _energies(evidence: Evidence, cell: Cell, protocol: Protocol) -> list[float]:
    """Mean energy of each network's weights at the end of training."""
    columns = (evidence.values(cell, f"energy_of_weights/{network}", protocol).values() for network in NETWORKS)
    return [fmean(values) for values in columns if values]


def _mean(evidence: Evidence, cell: Cell, metric: str, protocol: Protocol) -> float:
    values = evidence.values(cell, metric, protocol).values()
    return fmean(values) if values else float("nan")
