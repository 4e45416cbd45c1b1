"""RESULTS.md: every table beside the paper's numbers, then the claims. Written from results/ alone."""

from collections import Counter
from collections.abc import Iterable, Sequence

from hypersphere.paper.cells import AS_WRITTEN, METRICS, TUNED, Cell, Protocol, Row, Table
from hypersphere.paper.claims import CLAIMS, FURTHER
from hypersphere.paper.comparison import COMPARISON
from hypersphere.paper.figures import FIGURES, Figure
from hypersphere.paper.state import Evidence, estimate, measured
from hypersphere.paper.tables import TABLES
from hypersphere.paper.tuning import TRIALS
from hypersphere.paper.verdict import Claim, Verdict, judge
from hypersphere.results import Result

HEAD = """# Results

Written by `hypersphere reproduce` from the files in `results/`; do not edit. Ours are means over n seeds, ± the
half-width of the 95 % t-interval, of the last epoch on the test set. *As written* has the paper's hyperparameters as
its text has them; *tuned* has some that were chosen for BYOL on validation images, and are used for every variant:
{tuned}. Fewer epochs than the paper's are a protocol of their own. Empty: not run yet.
"""
RULE = """## Claims

The rule was fixed before the runs: differences of runs with the same seed, the 95 % t-interval of their mean.
*Reproduced* if it excludes 0 in the claimed direction, *not reproduced* if it excludes the published effect (or, where
the paper has no number, if it lies on the other side), *undecided* otherwise. Where something is said to matter little,
the bound is half a point, or 5 % of the time. Times are of runs with the same version, which had the same device to
themselves. What is claimed of the circle was written down after the first seed had run.
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
    parts = [HEAD.format(tuned=tuned), *(_table(table, evidence) for table in tables)]
    parts += [_figure(figure, (figures or {}).get(name), evidence) for name, figure in FIGURES.items()]
    parts += [RULE]
    protocols = dict.fromkeys(protocol for table in tables for protocol in evidence.protocols(table.cells))
    parts += [_claims(evidence, protocol) for protocol in protocols]
    own = {"What claims compare with": FURTHER, "Every method": COMPARISON, "Tuning": TRIALS}
    parts += [_own(title, table, evidence) for title, table in own.items()]
    parts += _stale(evidence, dict.fromkeys(cell for table in (*tables, *own.values()) for cell in table.cells))
    return "\n".join(parts)


def _table(table: Table, evidence: Evidence) -> str:
    header, protocols = [*table.header], evidence.protocols(table.cells)
    for metric in table.metrics:
        header += [f"{metric}, paper", *(f"{metric}, ours {protocol}" for protocol in protocols)]
    lines = [f"## {table.name}", "", f"{table.caption}.", "", _line(header), _line("---" for _ in header)]
    lines += [_line(_row(row, table, evidence, protocols)) for row in table.rows]
    return "\n".join([*lines, ""])


def _figure(figure: Figure, path: str | None, evidence: Evidence) -> str:
    protocol = evidence.whole(figure.cells)
    told = "" if protocol in (None, AS_WRITTEN) else f" Runs: {protocol}."
    if path and protocol is None:
        told = f" Not run yet: {', '.join(cell.name for cell in figure.cells if not evidence.of(cell))}."
    shown = f"![{figure.caption}]({path})" if path else "Not drawn yet: runs are missing."
    return f"## {figure.name}\n\n{figure.caption}.{told}\n\n{shown}\n"


def _row(row: Row, table: Table, evidence: Evidence, protocols: Sequence[Protocol]) -> Iterable[str]:
    yield from row.labels
    for metric in table.metrics:
        yield f"{row.published[metric]:.2f}" if metric in row.published else ""
        for protocol in protocols:
            yield "–" if row.cell is None else shown(row, metric, evidence, protocol)


def shown(row: Row, metric: str, evidence: Evidence, protocol: Protocol) -> str:
    """Ours, in words where there is no number."""
    assert row.cell is not None
    found = estimate(list(evidence.values(row.cell, metric, protocol).values()))
    lost = evidence.diverged(row.cell, protocol)
    if found is None:
        stale = protocol == AS_WRITTEN and evidence.stale(row.cell)
        return f"diverged (n = {len(lost)})" if lost else "stale" if stale else ""
    return f"{found}, {len(lost)} diverged" if lost else str(found)


def _claims(evidence: Evidence, protocol: Protocol) -> str:
    header = ("claim", "test", "published effect", "our effect", "verdict")
    told = [claim for claim in CLAIMS if protocol == AS_WRITTEN or _has_run(claim, evidence, protocol)]
    verdicts = [judge(claim, evidence, protocol) for claim in told]
    counts = Counter(verdict.word for verdict in verdicts)
    words = ("reproduced", "not reproduced", "undecided", "not tested")
    lines = [f"### {str(protocol).capitalize()}", ""]
    lines += [f"Of {len(told)}: {', '.join(f'{counts[word]} {word}' for word in words)}.", ""]
    lines += [_line(header), _line("---" for _ in header)]
    return "\n".join([*lines, *(_line(_claim(*judged)) for judged in zip(told, verdicts, strict=True)), ""])


def _has_run(claim: Claim, evidence: Evidence, protocol: Protocol) -> bool:
    """Some of it, by a protocol that changes it."""
    return all(map(protocol.changes, claim.cells)) and any(evidence.of(cell, protocol) for cell in claim.cells)


def _claim(claim: Claim, verdict: Verdict) -> Iterable[str]:
    effect = verdict.effect
    yield claim.sentence
    yield claim.test
    yield "" if claim.published is None else f"{claim.published:+.2f}"
    yield "" if effect is None else f"{effect.mean:+.2f}" + str(effect).removeprefix(f"{effect.mean:.2f}")
    yield verdict.word + (f", {verdict.diverged} diverged" if verdict.diverged else "")


def _own(title: str, table: Table, evidence: Evidence) -> str:
    """A table that the paper does not have."""
    header = (*table.header, *table.metrics)
    lines = [f"## {title}", "", f"{table.caption}.", "", _line(header), _line("---" for _ in header)]
    rows = (
        (*row.labels, *(shown(row, metric, evidence, AS_WRITTEN) for metric in table.metrics)) for row in table.rows
    )
    return "\n".join([*lines, *map(_line, rows), ""])


def _stale(evidence: Evidence, cells: Iterable[Cell]) -> Iterable[str]:
    """What no table above counts, if there is any."""
    header = ("cell", "seed", "differs from as written in", *METRICS)
    rows = [
        (cell.name, str(old.config.seed), _differences(cell, old), *(_measured(old, metric) for metric in METRICS))
        for cell in cells
        for old in evidence.stale(cell)
    ]
    if rows:
        lines = [STALE, _line(header), _line("---" for _ in header), *map(_line, rows)]
        yield "\n".join([*lines, ""])


def _differences(cell: Cell, old: Result) -> str:
    now = cell.config(old.config.seed)
    return ", ".join(f"{name} {getattr(old.config, name)}" for name in now.differences(old.config)) or "a default"


def _measured(old: Result, metric: str) -> str:
    value = measured(old, metric)
    return "" if value is None else f"{value:.2f}"


def _line(columns: Iterable[str]) -> str:
    return "| " + " | ".join(columns) + " |"
