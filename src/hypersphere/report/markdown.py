"""The text of RESULTS.md: a summary, all tables beside the published numbers, figures and claims."""

import itertools
from collections.abc import Iterable, Sequence

from hypersphere.paper.catalogue import OWN_TABLES, all_protocols, every_cell
from hypersphere.paper.cells import AS_WRITTEN, METRICS, TUNED, Cell, Protocol, Row, Table
from hypersphere.paper.claim import Claim, difference
from hypersphere.paper.claims import BESIDE
from hypersphere.paper.evidence import Evidence, measured
from hypersphere.paper.figures import FIGURES, Figure
from hypersphere.paper.mechanism import QUESTIONS
from hypersphere.paper.tables import TABLES
from hypersphere.paper.verdict import Judge
from hypersphere.report.dose_table import dose_table
from hypersphere.report.markdown_blocks import folded, pipe_table
from hypersphere.report.summary import conclusions, main_claims
from hypersphere.report.templating import render_text
from hypersphere.report.verdicts import factorial_table, untested, verdicts, version_1_table
from hypersphere.runs.results import Result
from hypersphere.util.statistics import estimate

_TITLES = {
    "beside": "Neighbours, uniformity and rank",
    "mechanism": "What MHE does",
    "cifar100": "CIFAR-100",
    "claims": "SimCLR",
    "methods": "Every method",
    "tuning": "Tuning",
}


def results_page(
    evidence: Evidence, tables: Iterable[Table] = TABLES.values(), figures: dict[str, str] | None = None
) -> str:
    """The page.

    Args:
        evidence: All results.
        tables: Tables of the paper.
        figures: Paths of the figures that are drawn, by name; "forest" is the one of the summary.
    """
    drawn, judge = figures or {}, Judge(evidence)
    shown = [*tables, BESIDE, *OWN_TABLES.values()]
    run = [table for table in shown if evidence.protocols(table.cells)]
    protocols = all_protocols(evidence)
    blocks: list[str] = []
    for table in run:
        blocks += [_table(table, evidence)]
        blocks += [dose_table(evidence)] * (table.name == "tab:weight")
        blocks += [_mechanism(judge)] * (table.name == "mechanism")
    page = render_text(
        "results.md",
        forest=drawn.get("forest"),
        conclusions=conclusions(main_claims(judge, protocols)),
        tuned=", ".join(f"{name} {value}" for name, value in TUNED.items()),
        tables=[*filter(None, blocks)],
        drawings=[_figure(figure, drawn.get(name), evidence) for name, figure in FIGURES.items()],
        verdicts=[*filter(None, (verdicts(judge, protocol) for protocol in protocols))],
        factorial=factorial_table(judge, protocols),
        version_1=version_1_table(judge),
        stale=_stale(evidence, shown),
        missing=[untested(judge, protocols), *(_folded_table(table) for table in shown if table not in run)],
    )
    return page.rstrip("\n") + "\n"


def _table(table: Table, evidence: Evidence) -> str:
    """A table, and below it the results of every seed, folded."""
    protocols = _protocols(table, evidence)
    header = [*table.header]
    for metric in table.metrics:
        header += [f"{metric}, paper"] * is_published(table, metric)
        alone = len(protocols) == 1 and not is_published(table, metric)
        header += [metric] if alone else [f"{metric}, {protocol}" for protocol in protocols]
    kept = [row for row in table.rows if row.published or _has_run(row, evidence, protocols)]
    rows = (_row(row, table, evidence, protocols) for row in kept)
    title = _TITLES.get(table.name, table.name) + f" (`{table.name}`)" * (table.name in OWN_TABLES)
    lines = [f"## {title}", "", f"{table.caption}.", "", *pipe_table(header, rows), ""]
    missing = [row.cell.name for row in table.rows if row not in kept and row.cell is not None]
    lines += [f"Not run yet: {', '.join(missing)}.", ""] if missing else []
    return "\n".join([*lines, _every_seed(table, evidence, protocols)])


def _protocols(table: Table, evidence: Evidence) -> list[Protocol]:
    """Protocols of a table's columns."""
    return evidence.protocols(table.cells) if table.protocol == AS_WRITTEN else [table.protocol]


def _has_run(row: Row, evidence: Evidence, protocols: Sequence[Protocol]) -> bool:
    return row.cell is not None and any(evidence.of(row.cell, protocol) for protocol in protocols)


def _every_seed(table: Table, evidence: Evidence, protocols: Sequence[Protocol]) -> str:
    rows = []
    for cell, protocol in itertools.product(table.cells, protocols):
        for seed, run in evidence.of(cell, protocol).items():
            values = [_number(run, metric) for metric in table.metrics]
            rows.append([cell.name, str(protocol), str(seed), *values, run.diverged or ""])
    header = ["cell", "protocol", "seed", *table.metrics, "diverged"]
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    return folded("Every seed", pipe_table(header, rows))


def _folded_table(table: Table) -> str:
    """The published numbers of a table without results."""
    header = [*table.header, *(f"{metric}, paper" for metric in table.metrics if is_published(table, metric))]
    rows = (
        [*row.labels, *(row.published_text(m) for m in table.metrics if is_published(table, m))] for row in table.rows
    )
    return folded(f"{_TITLES.get(table.name, table.name)}: {table.caption}", pipe_table(header, rows))


def _mechanism(judge: Judge) -> str:
    """The difference between each question's cell and its baseline."""
    protocol = OWN_TABLES["mechanism"].protocol
    rows = []
    for question in QUESTIONS:
        claim = Claim(question.sentence, "top-1", difference(question.cell, question.baseline))
        effect = judge.effect(claim, protocol)
        if effect is not None:
            rows.append((question.sentence, f"{question.cell.name} − {question.baseline.name}", str(effect)))
    return "\n".join([*pipe_table(("question", "difference", "top-1"), rows), ""]) if rows else ""


def _figure(figure: Figure, path: str | None, evidence: Evidence) -> str:
    protocol = evidence.whole(figure.needed)
    notes = "" if protocol in (None, AS_WRITTEN) else f" Runs: {protocol}."
    missing = [cell.name for cell in figure.cells if not evidence.of(cell, protocol or AS_WRITTEN)]
    if path and missing:
        notes += f" Not run yet: {', '.join(missing)}."
    if figure.kind == "curve" and protocol is not None:
        ends = (f"{title} {measured_text(cell, 'k-NN', evidence, protocol)}" for title, cell in figure.panels)
        notes += f" On the test set, at the end: {'; '.join(ends)}."
    lacks = "runs are missing" if protocol is None else "that needs `pip install matplotlib`"
    drawn = f"![{figure.caption.split('; ')[0]}]({path})" if path else f"Not drawn yet: {lacks}."
    return f"## {figure.name}\n\n{figure.caption}.{notes}\n\n{drawn}\n"


def is_published(table: Table, metric: str) -> bool:
    """Whether the paper reports a metric in a table."""
    return any(metric in row.published for row in table.rows)


def _row(row: Row, table: Table, evidence: Evidence, protocols: Sequence[Protocol]) -> Iterable[str]:
    yield from row.labels
    for metric in table.metrics:
        if is_published(table, metric):
            yield row.published_text(metric)
        for protocol in protocols:
            yield "–" if row.cell is None else measured_text(row.cell, metric, evidence, protocol)


def measured_text(cell: Cell, metric: str, evidence: Evidence, protocol: Protocol) -> str:
    """Our mean with its interval; "diverged", "stale" or nothing if there is no number."""
    found = estimate([*evidence.values(cell, metric, protocol).values()])
    lost = evidence.diverged(cell, protocol)
    if found is None:
        stale = protocol == AS_WRITTEN and evidence.stale(cell)
        return f"diverged (n = {len(lost)})" if lost else "stale" if stale else ""
    return f"{found}, {len(lost)} diverged" if lost else str(found)


def _stale(evidence: Evidence, tables: Sequence[Table]) -> str:
    """Results that no table above counts, if there are any."""
    cells = [*dict.fromkeys((*itertools.chain(*(table.cells for table in tables)), *every_cell()))]
    header = ("cell", "seed", "differs from as written in", *METRICS)
    changed = [(_differences(cell, old), old) for cell in cells for old in evidence.stale(cell)]
    names = {cell.name for cell in cells}
    changed += [("its name, which no cell has", old) for old in evidence.results if old.cell not in names]
    rows = [
        (old.cell, str(old.config.seed), how, *(_number(old, metric) for metric in METRICS)) for how, old in changed
    ]
    return "\n".join(pipe_table(header, rows)) if rows else ""


def _differences(cell: Cell, old: Result) -> str:
    now = cell.config(old.config.seed)
    return ", ".join(f"{name} {getattr(old.config, name)}" for name in old.config.differences(now)) or "a default"


def _number(run: Result, metric: str) -> str:
    value = measured(run, metric)
    return "" if value is None else f"{value:.2f}"
