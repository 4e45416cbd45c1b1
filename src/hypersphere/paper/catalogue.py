"""All tables and figures by name, the paper's and ours."""

from collections.abc import Iterator

from hypersphere.errors import UserError, did_you_mean
from hypersphere.paper.cells import Cell, Protocol, Table
from hypersphere.paper.cifar100 import CIFAR100
from hypersphere.paper.claims import FURTHER
from hypersphere.paper.comparison import COMPARISON
from hypersphere.paper.encoders import ENCODERS
from hypersphere.paper.evidence import Evidence
from hypersphere.paper.figures import FIGURES, Figure
from hypersphere.paper.larger_steps import LARGER_STEPS
from hypersphere.paper.mechanism import MECHANISM
from hypersphere.paper.muon import MUON
from hypersphere.paper.photographs import PHOTOGRAPHS
from hypersphere.paper.rates import RATES
from hypersphere.paper.tables import TABLES
from hypersphere.paper.tuning import TRIALS

_OWN = (MECHANISM, CIFAR100, FURTHER, COMPARISON, RATES, LARGER_STEPS, TRIALS, MUON, PHOTOGRAPHS, ENCODERS)
OWN_TABLES: dict[str, Table] = {table.name: table for table in _OWN}
CATALOGUE: dict[str, Table | Figure] = {**TABLES, **OWN_TABLES, **FIGURES}


def named(name: str) -> Table | Figure:
    """The table or figure with this name.

    Raises:
        UserError: If there is none.

    Example:
        >>> named("tab:bn").header
        ('BN', 'MHE')
    """
    if name not in CATALOGUE:
        known = ", ".join(CATALOGUE)
        raise UserError(f"unknown table or figure {name!r}{did_you_mean(name, CATALOGUE)} (there are {known})")
    return CATALOGUE[name]


def protocol_for(one: Table | Figure, asked: Protocol) -> Protocol:
    """The protocol for a table or figure: the one asked for, with the length of the table if it sets one."""
    own = one.protocol.epochs if isinstance(one, Table) else None
    return Protocol(asked.epochs or own, asked.tuned)


def all_protocols(evidence: Evidence) -> list[Protocol]:
    """Protocols for which any table has a result."""
    tables = (*TABLES.values(), *OWN_TABLES.values())
    return [*dict.fromkeys(protocol for table in tables for protocol in evidence.protocols(table.cells))]


def every_cell() -> Iterator[Cell]:
    """Every cell once, in the order of the catalogue."""
    yield from dict.fromkeys(cell for one in CATALOGUE.values() for cell in one.cells)
