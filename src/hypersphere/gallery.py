"""A page of pictures that needs nothing else: queries, and the images most like them."""

import string
from collections.abc import Sequence
from pathlib import Path

from hypersphere.data.decode import Unreadable, read_image
from hypersphere.data.folder import shown
from hypersphere.files import check_file, write_atomically
from hypersphere.neighbours import Found
from hypersphere.report.markup import Markup, element, joined, number, resource
from hypersphere.report.sheet import png_uri

SIDE = 144  # pixels that the longer side of a picture has
STYLE = f"""
.pictures {{ display: flex; flex-wrap: wrap; gap: 1rem; }}
.pictures figure {{ width: {SIDE}px; }}
.pictures figcaption {{ overflow-wrap: anywhere; }}
"""
ABOUT = """Left, the query; then the images whose vectors have the highest cosine with its own, nearest first. Below
each, its cosine and its path."""


def write_gallery(path: Path, found: Sequence[Found], of: str) -> None:
    check_file(path, "page")
    write_atomically(path, gallery(found, of).encode(errors="replace"))  # a path may be no text


def gallery(found: Sequence[Found], of: str) -> str:
    title = f"Nearest neighbours in {of}"
    sections = (_section(one) for one in found)
    return string.Template(resource("page.html")).substitute(
        title=joined(title),
        style=resource("page.css") + STYLE,
        body=joined(element("h1", title), element("p", ABOUT, class_="about"), *sections),
        script="",
    )


def _section(found: Found) -> Markup:
    query = _figure(found.query, "query")
    others = (_figure(one.path, number(one.cosine, 4)) for one in found.neighbours)
    return element("section", element("h2", shown(found.query)), element("div", query, *others, class_="pictures"))


def _figure(path: Path, told: str) -> Markup:
    caption = element("figcaption", element("strong", told), " ", shown(path))
    try:
        return element("figure", _picture(path), caption)
    except Unreadable as reason:
        return element("figure", element("p", f"cannot be read: {reason}", class_="absent"), caption)


def _picture(path: Path) -> Markup:
    """A tile from a sheet of its own."""
    image = read_image(path, SIDE)
    image.thumbnail((SIDE, SIDE))
    sheet = f"background-image: url({png_uri(image)}); --row-length: 1; --shape: {image.height / image.width:g}"
    place = f"--column: 0; --row: 0; --side: {image.width}px"
    return element("span", class_="tile", style=f"{sheet}; {place}", role="img", aria_label=shown(path))
