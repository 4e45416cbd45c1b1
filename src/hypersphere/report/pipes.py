"""A table in Markdown."""

from collections.abc import Iterable


def pipes(header: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    header = [*header]
    return [_line(header), _line("---" for _ in header), *map(_line, rows)]


def _line(columns: Iterable[str]) -> str:
    return "| " + " | ".join(columns) + " |"
