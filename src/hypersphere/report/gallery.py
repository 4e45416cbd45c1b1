"""An HTML page of pictures under headings that needs no other files, such as queries with similar images."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hypersphere.data.decode import Unreadable, preview
from hypersphere.data.tar_members import opened
from hypersphere.inference.embedding_files import read_vectors
from hypersphere.inference.neighbours import Found, Neighbour
from hypersphere.report.contact_sheet import png_uri
from hypersphere.report.templating import number, render
from hypersphere.util.files import check_file, write_atomically
from hypersphere.util.text import printable
from hypersphere.util.trust import is_trusted

SIDE = 144  # pixels of the longer side of a picture
MOST_PICTURES = 1000  # of a page
NEIGHBOURS = (
    "Left, the query; then the images whose embeddings have the highest cosine to it, nearest first. Below each image, "
    "its cosine and its path."
)


class Shown(NamedTuple):
    """A picture of a page: the image, what is written below it, and whether the user named the image."""

    path: Path | str
    caption: str
    named: bool = False


Sections = Sequence[tuple[str, Sequence[Shown]]]  # (heading, pictures)


def write_sections(path: Path, title: str, about: str, sections: Sections, of: str) -> None:
    """Write a page of pictures under headings. Shows images only if the user wrote or trusts the file of embeddings.

    Args:
        path: The page.
        title: Its title.
        about: A sentence below the title.
        sections: Headings with pictures; at most `MOST_PICTURES` are shown.
        of: File of the embeddings.

    Raises:
        UserError: If the page cannot be written.
    """
    check_file(path, "page")
    white = read_vectors(Path(of)).about["preprocess"].get("white")
    page = page_of(title, about, sections, white, is_trusted(Path(of)))
    write_atomically(path, page.encode(errors="replace"))  # a path may not be valid text


def page_of(title: str, about: str, sections: Sections, white: int | None = None, shown: bool = True) -> str:
    """A page of pictures as HTML; `shown` is whether to read images that the user did not name."""
    left, made = MOST_PICTURES, []
    for heading, pictures in sections:
        made.append((heading, [_picture(one, white, shown) for one in pictures[:left]], len(pictures[left:])))
        left = max(0, left - len(pictures))
        if not left:
            break
    omitted = len(sections) - len(made)
    return render("gallery.html", title=title, about=about, sections=made, omitted=omitted, side=SIDE)


def sections_of(groups: Iterable[tuple[str, Sequence[Neighbour]]]) -> Sections:
    """Headings with images, each with its cosine below it."""
    return [(heading, [Shown(one.path, f"{one.cosine:.4f}") for one in images]) for heading, images in groups]


def neighbour_sections(found: Sequence[Found]) -> Sections:
    """Queries with their neighbours, each with its cosine below it."""
    return [
        (
            printable(one.query),
            [
                Shown(one.query, "query", named=True),
                *(Shown(other.path, number(other.cosine, 4)) for other in one.neighbours),
            ],
        )
        for one in found
    ]


def _picture(one: Shown, white: int | None, shown: bool) -> dict[str, str]:
    """A picture as a tile of its own sheet with a link to its file, or the reason why it cannot be read."""
    found = {"path": printable(one.path), "title": one.caption, "style": "", "reason": "", "link": ""}
    try:
        if not (shown or one.named):
            raise Unreadable("not read without --trust, since another user wrote the file of embeddings")
        image = preview(opened(one.path), SIDE, white)
    except Unreadable as reason:
        return found | {"reason": str(reason)}
    image.thumbnail((SIDE, SIDE))
    return found | {"style": lone_tile(image, image.width), "link": link_to(one.path)}


def lone_tile(image: Any, width: int) -> str:
    """CSS of a PIL image as a tile of its own sheet, shown `width` pixels wide."""
    sheet = f"background-image: url({png_uri(image)}); --row-length: 1; --shape: {image.height / image.width:g}"
    return f"{sheet}; --column: 0; --row: 0; --side: {width}px"


def link_to(name: Path | str) -> str:
    """The URL of an image file; empty if the name is not a path of a file, such as a member of a tar file."""
    path = Path(name)
    return path.absolute().as_uri() if path.is_file() else ""
