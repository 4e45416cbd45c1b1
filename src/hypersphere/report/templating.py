"""The Jinja2 templates of the pages. HTML templates escape all text that is not `Markup` already."""

import math
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def render(template: str, **values: Any) -> Markup:
    """Fill an HTML template of the folder `templates`."""
    return Markup(render_text(template, **values))


def render_text(template: str, **values: Any) -> str:
    """Fill a template of the folder `templates`; nothing is escaped in Markdown."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    loader = PackageLoader("hypersphere.report")
    found = Environment(
        loader=loader,
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"number": number, "short": short}
    return found


def number(value: float, digits: int) -> str:
    """A number with a true minus sign.

    Example:
        >>> number(-1234.5, 1)
        '−1,234.5'
    """
    return f"{value:,.{digits}f}".replace("-", "−")


def short(value: float) -> str:
    """A number with four significant digits and a true minus sign."""
    return f"{value:.4g}".replace("-", "−")


def scientific(value: float) -> str:
    """A number as a multiple of a power of ten.

    Example:
        >>> scientific(3e5)
        '3·10⁵'
    """
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)) + 1e-9)
    mantissa = number(value / 10.0**exponent, 3).rstrip("0").removesuffix(".")
    return f"{mantissa}·10{str(exponent).translate(_SUPERSCRIPTS)}"
