"""An HTML page of pictures that needs no other files: queries, and the images that are most similar."""

from collections.abc import Sequence
from pathlib import Path

from hypersphere.data.decode import Unreadable, preview
from hypersphere.data.tar_members import opened
from hypersphere.inference.embedding_files import read_vectors
from hypersphere.inference.neighbours import Found
from hypersphere.report.contact_sheet import png_uri
from hypersphere.report.templating import number, render
from hypersphere.util.files import check_file, write_atomically
from hypersphere.util.text import printable
from hypersphere.util.trust import is_trusted

SIDE = 144  # pixels of the longer side of a picture


def write_gallery(path: Path, found: Sequence[Found], of: str) -> None:
    """Write a page of queries and their neighbours. Shows the neighbours only if the user wrote or trusts the file.

    Args:
        path: The page.
        found: Queries with their neighbours.
        of: File of the embeddings.

    Raises:
        UserError: If the page cannot be written.
    """
    check_file(path, "page")
    white = read_vectors(Path(of)).about["preprocess"].get("white")
    shown = is_trusted(Path(of))
    write_atomically(path, gallery(found, of, white, shown).encode(errors="replace"))  # a path may not be valid text


def gallery(found: Sequence[Found], of: str, white: int | None = None, shown: bool = True) -> str:
    """The page as HTML.

    Args:
        found: Queries with their neighbours.
        of: File of the embeddings.
        white: Grey level that the encoder takes for white, if it was set.
        shown: Whether to read the images that the file names; those of the queries are always read.
    """
    sections = [
        (
            printable(one.query),
            [
                _picture(one.query, "query", white),
                *(_picture(other.path, number(other.cosine, 4), white, shown) for other in one.neighbours),
            ],
        )
        for one in found
    ]
    return render("gallery.html", title=f"Nearest neighbours in {of}", sections=sections, side=SIDE)


def _picture(path: Path | str, title: str, white: int | None, shown: bool = True) -> dict[str, str]:
    """A picture as a tile of its own sheet, or the reason why it cannot be read."""
    found = {"path": printable(path), "title": title, "style": "", "reason": ""}
    try:
        if not shown:
            raise Unreadable("not read without --trust, since another user wrote the file of embeddings")
        image = preview(opened(path), SIDE, white)
    except Unreadable as reason:
        return found | {"reason": str(reason)}
    image.thumbnail((SIDE, SIDE))
    sheet = f"background-image: url({png_uri(image)}); --row-length: 1; --shape: {image.height / image.width:g}"
    return found | {"style": f"{sheet}; --column: 0; --row: 0; --side: {image.width}px"}
