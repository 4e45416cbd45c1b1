"""RESULTS.md: every table beside the paper's numbers, then the claims. Written from results/ alone."""

import itertools
from collections.abc import Iterable, Sequence

from hypersphere.paper.cells import AS_WRITTEN, METRICS, TUNED, Cell, Protocol, Row, Table
from hypersphere.paper.claims import BESIDE, FURTHER
from hypersphere.paper.comparison import COMPARISON
from hypersphere.paper.figures import FIGURES, Figure
from hypersphere.paper.state import Evidence, estimate, measured
from hypersphere.paper.tables import TABLES
from hypersphere.paper.tuning import TRIALS
from hypersphere.report.pipes import pipes
from hypersphere.report.verdicts import RULE, claims, in_short
from hypersphere.results import Result

HEAD = """# Results

Written by `hypersphere reproduce NAME` from the files in `results/`; do not edit. First what came out, then every table
and figure, then each claim with its test.

Ours are means over n seeds, ± the half-width of the 95 % t-interval, of the last epoch on the test set. *As written*
has the paper's hyperparameters as its text has them; *tuned* has some that were chosen for BYOL on validation images:
{tuned}. All variants have the same. They were chosen
twice: a first choice, without the last two, had met the test set once (see Stale). Fewer epochs than the paper's are a
protocol of their own. Empty: not run yet.

- **top-1, top-5**: per cent of a linear classifier on the frozen encoder, trained on random crops (`linear`);
  **linear-cached**: of one on stored features, for trials.
- **k-NN**: per cent by the weighted vote of the 200 nearest training images (cosine, T = 0.1; ImageNet: 20, T = 0.07).
- **uniformity**: log of the mean Gaussian potential G2 of the encoder's features on the unit sphere (t = 2), of the
  test images: 0 is all in one point, lower is more even.
- **energy**: mean of 1/θ² over pairs (a2), θ the angle between them.
- Names of cells, such as mhe-fq: **f** encoder, **g** projector, **q** predictor, the networks that MHE regularizes; a2
  unless **s0** … **a1** name another power; **weight**: of MHE, 10 unless named; **batch**: images at once; **no-bn**:
  without BatchNorm; **circle**: AlexNet with two outputs.
"""
STALE = """## Stale

Results of configs that are no cell's any more, tuned ones of an earlier choice among them. No number above has them in
it.
"""


def results_page(
    evidence: Evidence, tables: Iterable[Table] = TABLES.values(), figures: dict[str, str] | None = None
) -> str:
    """`figures`: those that are drawn, by name, and where."""
    tables = tuple(tables)
    tuned = ", ".join(f"{name} {value}" for name, value in TUNED.items())
    protocols = [*dict.fromkeys(protocol for table in tables for protocol in evidence.protocols(table.cells))]
    own = {
        "Neighbours and uniformity": BESIDE,
        "What claims compare with": FURTHER,
        "Every method": COMPARISON,
        "Tuning": TRIALS,
    }
    parts = [HEAD.format(tuned=tuned), in_short(evidence, protocols)]
    parts += [_table(table.name, table, evidence) for table in tables]
    parts += [_figure(figure, (figures or {}).get(name), evidence) for name, figure in FIGURES.items()]
    parts += [RULE, *(claims(evidence, protocol) for protocol in protocols)]
    parts += [_table(title, table, evidence) for title, table in own.items()]
    there = [table.cells for table in (*tables, *own.values())] + [figure.cells for figure in FIGURES.values()]
    parts += _stale(evidence, [*dict.fromkeys(itertools.chain(*there))])
    return "\n".join(parts)


def _table(title: str, table: Table, evidence: Evidence) -> str:
    header, protocols = [*table.header], evidence.protocols(table.cells)
    for metric in table.metrics:
        header += [f"{metric}, paper"] * _is_published(table, metric)
        alone = not _is_published(table, metric) and protocols == [AS_WRITTEN]
        header += [metric] if alone else [f"{metric}, ours {protocol}" for protocol in protocols]
    rows = (_row(row, table, evidence, protocols) for row in table.rows)
    return "\n".join([f"## {title}", "", f"{table.caption}.", "", *pipes(header, rows), ""])


def _figure(figure: Figure, path: str | None, evidence: Evidence) -> str:
    protocol = evidence.whole(figure.cells)
    told = "" if protocol in (None, AS_WRITTEN) else f" Runs: {protocol}."
    if path and protocol is None:
        told = f" Not run yet: {', '.join(cell.name for cell in figure.cells if not evidence.of(cell))}."
    if figure.kind == "curve" and protocol is not None:
        ends = (f"{title} {shown(cell, 'k-NN', evidence, protocol)}" for title, cell in figure.panels)
        told += f" On the test set, at the end: {'; '.join(ends)}."
    lacks = "runs are missing" if protocol is None else "that needs `pip install 'hypersphere[report]'`"
    drawn = f"![{figure.caption.split('; ')[0]}]({path})" if path else f"Not drawn yet: {lacks}."
    return f"## {figure.name}\n\n{figure.caption}.{told}\n\n{drawn}\n"


def _is_published(table: Table, metric: str) -> bool:
    return any(metric in row.published for row in table.rows)


def _row(row: Row, table: Table, evidence: Evidence, protocols: Sequence[Protocol]) -> Iterable[str]:
    yield from row.labels
    for metric in table.metrics:
        if _is_published(table, metric):
            yield row.told(metric)
        for protocol in protocols:
            yield "–" if row.cell is None else shown(row.cell, metric, evidence, protocol)


def shown(cell: Cell, metric: str, evidence: Evidence, protocol: Protocol) -> str:
    """Ours, in words where there is no number."""
    found = estimate([*evidence.values(cell, metric, protocol).values()])
    lost = evidence.diverged(cell, protocol)
    if found is None:
        stale = protocol == AS_WRITTEN and evidence.stale(cell)
        return f"diverged (n = {len(lost)})" if lost else "stale" if stale else ""
    return f"{found}, {len(lost)} diverged" if lost else str(found)


def _stale(evidence: Evidence, cells: Sequence[Cell]) -> Iterable[str]:
    """What no table above counts, if there is any."""
    header = ("cell", "seed", "differs from as written in", *METRICS)
    changed = [(_differences(cell, old), old) for cell in cells for old in evidence.stale(cell)]
    names = {cell.name for cell in cells}
    changed += [("its name, which no cell has", old) for old in evidence.results if old.cell not in names]
    rows = [
        (old.cell, str(old.config.seed), how, *(_measured(old, metric) for metric in METRICS)) for how, old in changed
    ]
    if rows:
        yield "\n".join([STALE, *pipes(header, rows), ""])


def _differences(cell: Cell, old: Result) -> str:
    now = cell.config(old.config.seed)
    return ", ".join(f"{name} {getattr(old.config, name)}" for name in now.differences(old.config)) or "a default"


def _measured(old: Result, metric: str) -> str:
    value = measured(old, metric)
    return "" if value is None else f"{value:.2f}"
