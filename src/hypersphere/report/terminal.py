"""The paper's tables as a terminal shows them: published, ours, and what a missing cell would cost here."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hypersphere.bench.timing import matmul_rate
from hypersphere.config import Config
from hypersphere.paper import cost
from hypersphere.paper.catalogue import CATALOGUE, protocol_for
from hypersphere.paper.cells import Cell, Protocol, Row, Table
from hypersphere.paper.figures import Figure
from hypersphere.paper.state import Evidence
from hypersphere.report.markdown import is_published, shown
from hypersphere.runs.machine import execution_of, provenance
from hypersphere.util.progress import counted, duration, table_console


def prices_of(evidence: Evidence, device: str) -> cost.Prices:
    """Of runs on this machine's device, by its rate of matrix products and the runs that it has made before."""
    how = execution_of(Config(device=device))
    rate = matmul_rate(how.device, how.precision)
    return cost.Prices.from_results(evidence.results, provenance(how.device)["device"], rate)


def list_overview(evidence: Evidence, seeds: Sequence[int], protocol: Protocol, device: str) -> None:
    """One line for each table and figure: how many of its runs are there, and what the others would cost."""
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
        there = len(cells) * len(seeds) - len(lacking)
        grid.add_row(name, _about(one), f"{there} of {len(cells) * len(seeds)}", duration(cost) if lacking else "")
    console.print(grid, "")
    print(f"Runs: {counted(len(seeds), 'seed')} of each cell, {protocol}; cells of several tables are counted in each.")
    known = "and by runs that it has finished" if prices.corrections else "which is rough without a finished run"
    print(f"Costs: pretraining here, by {prices.tflops:.3g} TFLOP/s of matrix products, {known}.")
    print("Next: hypersphere reproduce NAME --dry-run shows its cells; reproduce NAME runs what is missing;")
    print("      hypersphere reproduce --budget 25m runs what tells most in that time.")


def _about(one: Table | Figure) -> str:
    """A caption in a few words: what a table varies, or the first words of a figure's."""
    if isinstance(one, Figure):
        return re.split("[,;:]", one.caption)[0]
    setting, _, varied = one.caption.partition(": ")
    return f"{varied[0].upper()}{varied[1:].split('. ')[0]}" if varied and len(varied) < 80 else setting


def list_tables(
    evidence: Evidence, seeds: Sequence[int], protocol: Protocol, device: str, tables: Iterable[Table]
) -> None:
    """Every cell of them."""
    prices, console = prices_of(evidence, device), table_console()
    for table in filter(lambda table: protocol.fits(table.cells), tables):
        grid = _table(table, evidence, seeds, protocol_for(table, protocol), prices)
        grid.padding = (0, int(console.width >= 100), 0, 0)
        console.print(grid, "")


def _table(table: Table, evidence: Evidence, seeds: Sequence[int], protocol: Protocol, prices: cost.Prices) -> Any:
    from rich import box
    from rich.table import Table as Grid

    named = table.header[-1] == "cell"  # its labels have the names already
    title = f"{table.name}: {table.caption}"
    grid = Grid(*table.header, title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    if named:
        grid.columns[-1].no_wrap = True
    else:
        grid.add_column("cell", no_wrap=True)  # a name is of use as a whole
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
            yield row.told(metric)
        yield "" if row.cell is None else shown(row.cell, metric, evidence, protocol)


def _lacking(cell: Cell, evidence: Evidence, seeds: Sequence[int], protocol: Protocol, prices: cost.Prices) -> str:
    if cell.obstacle is not None:
        return cell.obstacle
    lacking = [seed for seed in seeds if seed not in evidence.of(cell, protocol)]
    stale = len(evidence.stale(cell))
    told = f"{stale} stale; " if stale else ""
    if not lacking:
        return told.removesuffix("; ")
    each = prices.training(protocol.config(cell, 0))
    return f"{told}{len(lacking)} of {len(seeds)}: {duration(each * len(lacking))}"


def list_jobs(jobs: Sequence[Any], evidence: Evidence, device: str) -> None:
    """What would run."""
    if not jobs:
        print("nothing is missing")
        return
    prices = prices_of(evidence, device)
    costs = [prices.training(job.config) if job.trained else 0.0 for job in jobs]
    for job, each in zip(jobs, costs, strict=True):
        print(f"{job}: {duration(each)}")
    print(f"{counted(len(jobs), 'run')}: about {duration(sum(costs))} of pretraining")


def list_plan(
    plan: Sequence[tuple[Any, str]], seconds: Mapping[str, float], workers: int, budget: float, rest: float
) -> None:
    """What fits into the time, the claim that each run is for, and how long the cheapest of the others takes."""
    left = f"; the cheapest run left takes about {duration(rest)}" if rest else "; nothing else is missing"
    if not plan:
        print(f"nothing that is missing can be done in {duration(budget)}{left}" if rest else "nothing is missing")
        return
    for job, sentence in plan:
        print(f"{job}: {duration(seconds[job.name])}" + (f" ({sentence.removesuffix('.')})" if sentence else ""))
    at_once = f", {workers} at once" if workers > 1 else ""
    work = sum(seconds[job.name] for job, _ in plan) / workers
    print(f"{counted(len(plan), 'run')}{at_once}: about {duration(work)} of {duration(budget)}{left}", flush=True)
