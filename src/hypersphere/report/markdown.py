"""RESULTS.md: a summary, every table beside the paper's numbers, figures, claims. Written from results/ alone."""

import itertools
from collections.abc import Iterable, Sequence

from hypersphere.paper.catalogue import OWN_TABLES, all_protocols, every_cell
from hypersphere.paper.cells import AS_WRITTEN, METRICS, TUNED, Cell, Protocol, Row, Table
from hypersphere.paper.claim import Claim, difference
from hypersphere.paper.claims import BESIDE
from hypersphere.paper.figures import FIGURES, Figure
from hypersphere.paper.mechanism import QUESTIONS
from hypersphere.paper.state import Evidence, measured
from hypersphere.paper.tables import TABLES
from hypersphere.paper.verdict import Judge
from hypersphere.report.dose import dose_table
from hypersphere.report.pipes import pipes
from hypersphere.report.summary import summary
from hypersphere.report.verdicts import claims_part, folded, untested
from hypersphere.runs.results import Result
from hypersphere.util.intervals import estimate

HEAD = """# Results

Written by `hypersphere reproduce` from the files in `results/`; do not edit.

"""
TERMS = """## How to read the tables

Our numbers are means over n seeds ± the half-width of their 95 % t-interval, of the last epoch, on the test set. *As
written* uses the hyperparameters of the paper's text. *Tuned* uses some that were chosen for BYOL on validation images:
{tuned}; all variants use the same. We tuned twice: the first choice
(crop_min and batch) was evaluated once on the test set (see Stale). Fewer epochs than the paper's are a protocol of
their own.

- **top-1, top-5**: accuracy in per cent of a linear classifier on the frozen encoder, trained on random crops
  (`linear`). **linear-cached**: of one on stored features.
- **k-NN**: accuracy in per cent of the weighted vote of the 200 nearest training images (cosine, T = 0.1; ImageNet: 20,
  T = 0.07).
- **uniformity**: log of the mean Gaussian potential G2 of the encoder's features on the unit sphere (t = 2), of the
  test images: 0 if they coincide, lower is more uniform. **effective rank**: of the same features.
- **energy**: mean of 1/θ² over pairs (a2), θ the angle between them.
- **training time, %**: 100 times the logarithm of the seconds, so that differences are per cent; 5 % more is 4.88.
- Names of cells, such as mhe-fq: MHE regularizes **f** the encoder, **g** the projector, **q** the predictor; a2 unless
  **s0** … **a1** name another power; **weight**: of MHE, 10 unless named; **batch**: images at once, **-lr**: learning
  rate scaled by them; **no-bn**: without BatchNorm; **circle**: AlexNet with two outputs.
"""
STALE = """## Stale

Results of configs that no cell has any more. No number above includes them.
"""
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
    """`figures`: those that are drawn, by name, and where; "forest" is the summary's."""
    drawn, judge = figures or {}, Judge(evidence)
    shown = [*tables, BESIDE, *OWN_TABLES.values()]
    run = [table for table in shown if evidence.protocols(table.cells)]
    protocols = all_protocols(evidence)
    tuned = ", ".join(f"{name} {value}" for name, value in TUNED.items())
    parts = [HEAD + summary(judge, protocols, drawn.get("forest")), TERMS.format(tuned=tuned)]
    for table in run:
        parts += [_table(table, evidence)]
        parts += [dose_table(evidence)] * (table.name == "tab:weight")
        parts += [_mechanism(judge)] * (table.name == "mechanism")
    parts += [_figure(figure, drawn.get(name), evidence) for name, figure in FIGURES.items()]
    parts += claims_part(judge, protocols)
    parts += _stale(evidence, shown)
    parts += ["## Not run yet\n", untested(judge, protocols)]
    parts += [_folded_table(table) for table in shown if table not in run]
    return "\n".join(filter(None, parts))


def _table(table: Table, evidence: Evidence) -> str:
    """And every seed of it, folded."""
    protocols = _protocols(table, evidence)
    header = [*table.header]
    for metric in table.metrics:
        header += [f"{metric}, paper"] * is_published(table, metric)
        alone = len(protocols) == 1 and not is_published(table, metric)
        header += [metric] if alone else [f"{metric}, {protocol}" for protocol in protocols]
    kept = [row for row in table.rows if row.published or _has_run(row, evidence, protocols)]
    rows = (_row(row, table, evidence, protocols) for row in kept)
    title = _TITLES.get(table.name, table.name) + f" (`{table.name}`)" * (table.name in OWN_TABLES)
    lines = [f"## {title}", "", f"{table.caption}.", "", *pipes(header, rows), ""]
    missing = [row.cell.name for row in table.rows if row not in kept and row.cell is not None]
    lines += [f"Not run yet: {', '.join(missing)}.", ""] if missing else []
    return "\n".join([*lines, _every_seed(table, evidence, protocols)])


def _protocols(table: Table, evidence: Evidence) -> list[Protocol]:
    """Of a table's columns: its own, where it has one."""
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
    return folded("Every seed", pipes(header, rows))


def _folded_table(table: Table) -> str:
    """Of one without any result: what was published."""
    header = [*table.header, *(f"{metric}, paper" for metric in table.metrics if is_published(table, metric))]
    rows = ([*row.labels, *(row.told(m) for m in table.metrics if is_published(table, m))] for row in table.rows)
    return folded(f"{_TITLES.get(table.name, table.name)}: {table.caption}", pipes(header, rows))


def _mechanism(judge: Judge) -> str:
    """What each question's cell differs from its baseline by."""
    protocol = OWN_TABLES["mechanism"].protocol
    rows = []
    for question in QUESTIONS:
        claim = Claim(question.sentence, "top-1", difference(question.cell, question.baseline))
        effect = judge.effect(claim, protocol)
        if effect is not None:
            rows.append((question.sentence, f"{question.cell.name} − {question.baseline.name}", str(effect)))
    return "\n".join([*pipes(("question", "difference", "top-1"), rows), ""]) if rows else ""


def _figure(figure: Figure, path: str | None, evidence: Evidence) -> str:
    protocol = evidence.whole(figure.needed)
    told = "" if protocol in (None, AS_WRITTEN) else f" Runs: {protocol}."
    missing = [cell.name for cell in figure.cells if not evidence.of(cell, protocol or AS_WRITTEN)]
    if path and missing:
        told += f" Not run yet: {', '.join(missing)}."
    if figure.kind == "curve" and protocol is not None:
        ends = (f"{title} {shown(cell, 'k-NN', evidence, protocol)}" for title, cell in figure.panels)
        told += f" On the test set, at the end: {'; '.join(ends)}."
    lacks = "runs are missing" if protocol is None else "that needs `pip install 'hypersphere[report]'`"
    drawn = f"![{figure.caption.split('; ')[0]}]({path})" if path else f"Not drawn yet: {lacks}."
    return f"## {figure.name}\n\n{figure.caption}.{told}\n\n{drawn}\n"


def is_published(table: Table, metric: str) -> bool:
    return any(metric in row.published for row in table.rows)


def _row(row: Row, table: Table, evidence: Evidence, protocols: Sequence[Protocol]) -> Iterable[str]:
    yield from row.labels
    for metric in table.metrics:
        if is_published(table, metric):
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


def _stale(evidence: Evidence, tables: Sequence[Table]) -> Iterable[str]:
    """What no table above counts, if there is any."""
    cells = [*dict.fromkeys((*itertools.chain(*(table.cells for table in tables)), *every_cell()))]
    header = ("cell", "seed", "differs from as written in", *METRICS)
    changed = [(_differences(cell, old), old) for cell in cells for old in evidence.stale(cell)]
    names = {cell.name for cell in cells}
    changed += [("its name, which no cell has", old) for old in evidence.results if old.cell not in names]
    rows = [
        (old.cell, str(old.config.seed), how, *(_number(old, metric) for metric in METRICS)) for how, old in changed
    ]
    if rows:
        yield "\n".join([STALE, *pipes(header, rows), ""])


def _differences(cell: Cell, old: Result) -> str:
    now = cell.config(old.config.seed)
    return ", ".join(f"{name} {getattr(old.config, name)}" for name in old.config.differences(now)) or "a default"


def _number(run: Result, metric: str) -> str:
    value = measured(run, metric)
    return "" if value is None else f"{value:.2f}"
