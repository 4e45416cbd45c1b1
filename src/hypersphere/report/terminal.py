"""The paper's tables on the terminal: published numbers, ours, and what missing runs would cost here."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hypersphere.bench.timing import matmul_rate
from hypersphere.config import Config
from hypersphere.paper import cost
from hypersphere.paper.catalogue import CATALOGUE, protocol_for
from hypersphere.paper.cells import Cell, Protocol, Row, Table
from hypersphere.paper.evidence import Evidence
from hypersphere.paper.figures import Figure
from hypersphere.report.markdown import is_published, measured_text
from hypersphere.runs.machine import provenance, training_execution
from hypersphere.util.console import duration, pluralize, table_console


def prices_of(evidence: Evidence, device: str) -> cost.Prices:
    """Estimate durations on this machine, from its speed of matrix products and its finished runs.

    Args:
        evidence: All results.
        device: Device of the runs.
    """
    how = training_execution(Config(device=device))
    rate = matmul_rate(how.device, how.precision)
    return cost.Prices.from_results(evidence.results, provenance(how.device)["device"], rate)


def list_overview(evidence: Evidence, seeds: Sequence[int], protocol: Protocol, device: str) -> None:
    """Print a line for each table and figure: how many runs it has, and what the missing ones would cost."""
    from rich import box
    from rich.table import Table as Grid

    prices, console = prices_of(evidence, device), table_console()
    grid = Grid("name", "what it shows", "runs", "missing", box=box.SIMPLE_HEAD, show_edge=False)
    for name, one in CATALOGUE.items():
        used = protocol_for(one, protocol)
        cells = [cell for cell in one.cells if cell.obstacle is None]
        if not used.fits(cells):
            continue
        lacking = [(cell, seed) for cell in cells for seed in seeds if seed not in evidence.of(cell, used)]
        cost = sum(prices.training(used.config(cell, 0)) for cell, _ in lacking if cell.trained)
        finished = len(cells) * len(seeds) - len(lacking)
        grid.add_row(name, _about(one), f"{finished} of {len(cells) * len(seeds)}", duration(cost) if lacking else "")
    console.print(grid, "")
    print(f"Runs: {pluralize(len(seeds), 'seed')} per cell, {protocol}. Cells that tables share count in each of them.")
    basis = "and from finished runs" if prices.corrections else "a rough estimate without finished runs"
    print(f"Costs: pretraining on this machine, from {prices.tflops:.3g} TFLOP/s of matrix products, {basis}.")
    print("Next: hypersphere reproduce NAME --dry-run shows its cells; reproduce NAME makes the missing runs;")
    print("      hypersphere reproduce --budget 25m makes the most informative runs that fit into 25 minutes.")


def _about(one: Table | Figure) -> str:
    """A short caption: what a table varies, or the first words of a figure's caption."""
    if isinstance(one, Figure):
        return re.split("[,;:] ", one.caption)[0]
    setting, _, varied = one.caption.partition(": ")
    return f"{varied[0].upper()}{varied[1:].split('. ')[0]}" if varied and len(varied) < 80 else setting


def list_tables(
    evidence: Evidence, seeds: Sequence[int], protocol: Protocol, device: str, tables: Iterable[Table]
) -> None:
    """Print every cell of some tables."""
    prices, console = prices_of(evidence, device), table_console()
    for table in filter(lambda table: protocol.fits(table.cells), tables):
        grid = _table(table, evidence, seeds, protocol_for(table, protocol), prices)
        grid.padding = (0, int(console.width >= 100), 0, 0)
        console.print(grid, "")


def _table(table: Table, evidence: Evidence, seeds: Sequence[int], protocol: Protocol, prices: cost.Prices) -> Any:
    from rich import box
    from rich.table import Table as Grid

    named = table.header[-1] == "cell"  # its labels contain the names already
    title = f"{table.name}: {table.caption}"
    grid = Grid(*table.header, title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    if named:
        grid.columns[-1].no_wrap = True
    else:
        grid.add_column("cell", no_wrap=True)  # names are there to be copied
    for metric in table.metrics:
        if is_published(table, metric):
            grid.add_column(f"{metric}, paper", justify="right", min_width=6)
        grid.add_column(f"{metric}, {protocol}", justify="right", min_width=7)
    grid.add_column("missing", min_width=7)
    for row in table.rows:
        name = [] if named else ["" if row.cell is None else row.cell.name]
        lacks = "" if row.cell is None else _lacking(row.cell, evidence, seeds, protocol, prices)
        grid.add_row(*row.labels, *name, *_numbers(row, table, evidence, protocol), lacks)
    return grid


def _numbers(row: Row, table: Table, evidence: Evidence, protocol: Protocol) -> Iterable[str]:
    for metric in table.metrics:
        if is_published(table, metric):
            yield row.published_text(metric)
        yield "" if row.cell is None else measured_text(row.cell, metric, evidence, protocol)


def _lacking(cell: Cell, evidence: Evidence, seeds: Sequence[int], protocol: Protocol, prices: cost.Prices) -> str:
    if cell.obstacle is not None:
        return cell.obstacle
    lacking = [seed for seed in seeds if seed not in evidence.of(cell, protocol)]
    stale = len(evidence.stale(cell))
    note = f"{stale} stale; " if stale else ""
    if not lacking:
        return note.removesuffix("; ")
    each = prices.training(protocol.config(cell, 0))
    return f"{note}{len(lacking)} of {len(seeds)}: {duration(each * len(lacking))}"


def list_jobs(jobs: Sequence[Any], evidence: Evidence, device: str) -> None:
    """Print the jobs that would run, with their durations."""
    if not jobs:
        print("nothing is missing")
        return
    prices = prices_of(evidence, device)
    costs = [prices.training(job.config) if job.trained else 0.0 for job in jobs]
    for job, each in zip(jobs, costs, strict=True):
        print(f"{job}: {duration(each)}")
    print(f"{pluralize(len(jobs), 'run')}: about {duration(sum(costs))} of pretraining")


def list_plan(
    plan: Sequence[tuple[Any, str]], seconds: Mapping[str, float], workers: int, budget: float, rest: float
) -> None:
    """Print the runs that fit into a budget.

    Args:
        plan: Jobs, each with the claim that gains most from it.
        seconds: Expected duration of the jobs, by name.
        workers: Runs at once.
        budget: Seconds to spend.
        rest: Duration of the cheapest run that is left; 0 if none is.
    """
    left = f"; the cheapest run left takes about {duration(rest)}" if rest else "; nothing else is missing"
    if not plan:
        print(f"no missing run fits into {duration(budget)}{left}" if rest else "nothing is missing")
        return
    for job, sentence in plan:
        print(f"{job}: {duration(seconds[job.name])}" + (f" ({sentence.removesuffix('.')})" if sentence else ""))
    at_once = f", {workers} at once" if workers > 1 else ""
    work = sum(seconds[job.name] for job, _ in plan) / workers
    print(f"{pluralize(len(plan), 'run')}{at_once}: about {duration(work)} of {duration(budget)}{left}", flush=True)
