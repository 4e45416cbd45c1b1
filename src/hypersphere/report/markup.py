"""HTML and SVG from small pieces; text is escaped where it goes in."""

import math
from html import escape
from importlib import resources

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Markup(str):
    """HTML or SVG already; any other string is text."""

    __slots__ = ()


def element(tag: str, *children: str, **attributes: object) -> Markup:
    """<tag …>children</tag>; `class_` and `stroke_width` are class and stroke-width, None leaves one out."""
    named = (
        f' {name.strip("_").replace("_", "-")}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{''.join(named)}>{joined(*children)}</{tag}>")


def joined(*children: str) -> Markup:
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children))


def number(value: float, digits: int) -> str:
    """With a true minus."""
    return f"{value:,.{digits}f}".replace("-", "−")


def scientific(value: float) -> str:
    """3·10⁵"""
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)) + 1e-9)
    mantissa = number(value / 10.0**exponent, 3).rstrip("0").removesuffix(".")
    return f"{mantissa}·10{str(exponent).translate(RAISED)}"


def table(head: list[str], rows: list[list[str]], label: str, **attributes: object) -> Markup:
    """The first column names the rows. Where it is wider than the screen, it scrolls by itself."""
    top = element("tr", *(element("th", cell, scope="col") for cell in head))
    body = (
        element("tr", element("th", name, scope="row"), *(element("td", cell) for cell in cells))
        for name, *cells in rows
    )
    whole = element("table", element("thead", top), element("tbody", *body), **attributes)
    return element("div", whole, class_="wide", role="region", aria_label=label, tabindex=0)


def resource(name: str) -> str:
    """A file that lies beside this one."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
