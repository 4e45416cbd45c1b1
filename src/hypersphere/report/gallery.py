"""A page of pictures that needs nothing else: queries, and the images most like them."""

import string
from collections.abc import Sequence
from pathlib import Path

from hypersphere.data.decode import Unreadable, read_image
from hypersphere.data.members import opened
from hypersphere.inference.neighbours import Found
from hypersphere.inference.vectors import read_vectors
from hypersphere.report.markup import Markup, element, joined, number, resource
from hypersphere.report.sheet import png_uri
from hypersphere.util.files import check_file, write_atomically
from hypersphere.util.text import printable

SIDE = 144  # pixels that the longer side of a picture has
STYLE = f"""
.pictures {{ display: flex; flex-wrap: wrap; gap: 1rem; }}
.pictures figure {{ width: {SIDE}px; }}
.pictures figcaption {{ overflow-wrap: anywhere; }}
"""
ABOUT = """Left, the query; then the images whose vectors have the highest cosine with its own, nearest first. Below
each, its cosine and its path."""


def write_gallery(path: Path, found: Sequence[Found], of: str) -> None:
    """`of`: the file of embeddings."""
    check_file(path, "page")
    white = read_vectors(Path(of)).about["preprocess"].get("white")
    write_atomically(path, gallery(found, of, white).encode(errors="replace"))  # a path may be no text


def gallery(found: Sequence[Found], of: str, white: int | None = None) -> str:
    title = f"Nearest neighbours in {of}"
    sections = (_section(one, white) for one in found)
    return string.Template(resource("page.html")).substitute(
        title=joined(title),
        style=resource("page.css") + STYLE,
        body=joined(element("h1", title), element("p", ABOUT, class_="about"), *sections),
        script="",
    )


def _section(found: Found, white: int | None) -> Markup:
    query = _figure(found.query, "query", white)
    others = (_figure(one.path, number(one.cosine, 4), white) for one in found.neighbours)
    return element("section", element("h2", printable(found.query)), element("div", query, *others, class_="pictures"))


def _figure(path: Path | str, told: str, white: int | None) -> Markup:
    caption = element("figcaption", element("strong", told), " ", printable(path))
    try:
        return element("figure", _picture(path, white), caption)
    except Unreadable as reason:
        return element("figure", element("p", f"cannot be read: {reason}", class_="absent"), caption)


def _picture(path: Path | str, white: int | None) -> Markup:
    """A tile from a sheet of its own."""
    image = read_image(opened(path), SIDE, white)
    image.thumbnail((SIDE, SIDE))
    sheet = f"background-image: url({png_uri(image)}); --row-length: 1; --shape: {image.height / image.width:g}"
    place = f"--column: 0; --row: 0; --side: {image.width}px"
    return element("span", class_="tile", style=f"{sheet}; {place}", role="img", aria_label=printable(path))
