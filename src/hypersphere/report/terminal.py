"""The paper's tables as a terminal shows them: published, ours, and what a missing cell would cost here."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hypersphere.bench.timing import matmul_rate
from hypersphere.config import Config
from hypersphere.paper import cost
from hypersphere.paper.catalogue import protocol_for
from hypersphere.paper.cells import Cell, Protocol, Row, Table
from hypersphere.paper.cifar100 import CIFAR100
from hypersphere.paper.claims import FURTHER
from hypersphere.paper.figures import FIGURES
from hypersphere.paper.mechanism import MECHANISM
from hypersphere.paper.state import Evidence
from hypersphere.paper.tables import TABLES
from hypersphere.report.markdown import shown
from hypersphere.runs.machine import execution_of, provenance
from hypersphere.util.progress import counted, duration, table_console


def prices_of(evidence: Evidence, device: str) -> cost.Prices:
    """Of runs on this machine's device, by its rate of matrix products and the runs that it has made before."""
    how = execution_of(Config(device=device))
    rate = matmul_rate(how.device, how.precision)
    return cost.Prices.from_results(evidence.results, provenance(how.device)["device"], rate)


def list_tables(
    evidence: Evidence,
    seeds: Sequence[int],
    protocol: Protocol,
    device: str,
    tables: Iterable[Table] = (*TABLES.values(), MECHANISM, CIFAR100, FURTHER),
) -> None:
    prices, console = prices_of(evidence, device), table_console()
    for table in filter(lambda table: protocol.fits(table.cells), tables):
        grid = _table(table, evidence, seeds, protocol_for(table, protocol), prices)
        grid.padding = (0, int(console.width >= 100), 0, 0)
        console.print(grid, "")
    for name, figure in FIGURES.items():
        lacks = [cell.name for cell in figure.cells if not evidence.of(cell, protocol)]
        print(f"{name}: {'lacks ' + ', '.join(lacks) if evidence.whole(figure.needed) is None else 'can be drawn'}")
    each = counted(len(seeds), "seed")
    print(f"Costs are of pretraining {each} here, counted at {prices.tflops:.3g} TFLOP/s of matrix products.")
    print("hypersphere reproduce NAME runs what a table or figure lacks; --cells NAME … some of it.")
    print("Names beyond these: methods (every method alike), tuning (what was tried before tuning).")
    print("hypersphere reproduce --budget 25m runs what tells most in that time.")


def _table(table: Table, evidence: Evidence, seeds: Sequence[int], protocol: Protocol, prices: cost.Prices) -> Any:
    from rich import box
    from rich.table import Table as Grid

    title = f"{table.name}: {table.caption}"
    grid = Grid(*table.header, title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    grid.add_column("cell", no_wrap=True)  # a name is of use as a whole
    for metric in table.metrics:
        grid.add_column(f"{metric}, paper", justify="right", min_width=6)
        grid.add_column(f"{metric}, ours {protocol}", justify="right", min_width=7)
    grid.add_column("missing", min_width=7)
    for row in table.rows:
        grid.add_row(*row.labels, "" if row.cell is None else row.cell.name, *_numbers(row, table, evidence, protocol),
                     "" if row.cell is None else _lacking(row.cell, evidence, seeds, protocol, prices))  # fmt: skip
    return grid


def _numbers(row: Row, table: Table, evidence: Evidence, protocol: Protocol) -> Iterable[str]:
    for metric in table.metrics:
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


def list_plan(plan: Sequence[tuple[Any, str]], seconds: Mapping[str, float], workers: int, budget: float) -> None:
    """What fits into the time, and the claim that each run is for."""
    if not plan:
        print(f"nothing that is missing can be done in {duration(budget)}")
        return
    for job, sentence in plan:
        print(f"{job}: {duration(seconds[job.name])}" + (f" ({sentence.removesuffix('.')})" if sentence else ""))
    at_once = f", {workers} at once" if workers > 1 else ""
    work = sum(seconds[job.name] for job, _ in plan) / workers
    print(f"{counted(len(plan), 'run')}{at_once}: about {duration(work)} of {duration(budget)}", flush=True)
