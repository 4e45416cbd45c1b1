"""Small HTML tables, as notebooks show objects."""

from collections.abc import Iterable, Sequence
from html import escape


def html_table(title: str, rows: Iterable[Sequence[str]], head: Sequence[str] = ()) -> str:
    """A table with a title above.

    Example:
        >>> html_table("a & b", [("1", "2")]).replace(' style="text-align: left"', "")
        '<strong>a &amp; b</strong><table><tbody><tr><td>1</td><td>2</td></tr></tbody></table>'
    """
    first = f"<thead>{_row(head, 'th')}</thead>" if head else ""
    body = "".join(_row(row, "td") for row in rows)
    return f"<strong>{escape(title)}</strong><table>{first}<tbody>{body}</tbody></table>"


def _row(cells: Sequence[str], kind: str) -> str:
    return "<tr>" + "".join(f'<{kind} style="text-align: left">{escape(cell)}</{kind}>' for cell in cells) + "</tr>"
