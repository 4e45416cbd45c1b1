"""Building blocks of Markdown pages."""

from collections.abc import Iterable


def pipe_table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Lines of a table.

    Example:
        >>> pipe_table(["a", "b"], [["1", "2"]])
        ['| a | b |', '| --- | --- |', '| 1 | 2 |']
    """
    header = [*header]
    return [_line(header), _line("---" for _ in header), *map(_line, rows)]


def _line(columns: Iterable[str]) -> str:
    return "| " + " | ".join(columns) + " |"


def folded(title: str, lines: Iterable[str]) -> str:
    """Lines that the reader unfolds by clicking on the title."""
    return "\n".join([f"<details><summary>{title}</summary>", "", *lines, "", "</details>", ""])
