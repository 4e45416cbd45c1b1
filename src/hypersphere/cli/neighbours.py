"""hypersphere neighbours: find similar images, near-duplicates, clusters and outliers."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from hypersphere.cli.next_step import print_next
from hypersphere.cli.parsing import missing_argument, parse
from hypersphere.errors import UserError

if TYPE_CHECKING:
    from hypersphere.report.gallery import Sections

CLUSTER_IMAGES = 6  # of each cluster, by default


@dataclasses.dataclass(frozen=True)
class NeighboursOptions:
    """Print the images in FILE whose embeddings have the highest cosine with that of each QUERY.

    Without a QUERY: its near-duplicates (--duplicates), clusters (--clusters K) or outliers (--outliers N)."""

    file: Annotated[str, Positional, arg(metavar="FILE")]
    """File of embeddings that embed wrote."""
    query: Annotated[tuple[str, ...], Positional, arg(metavar="[QUERY …]")] = ()
    """Image files to compare with. None: --duplicates, --clusters or --outliers says what to find."""
    count: int | None = None
    """Neighbours to show for each query (None: 10), or images of each cluster (None: 6)."""
    duplicates: bool = False
    """Find groups of near-duplicates."""
    threshold: float | None = None
    """Smallest cosine of near-duplicates. None: the cosine of a quarter of the median angle between an image and its
    nearest neighbour."""
    clusters: int | None = None
    """Find so many clusters with spherical k-means, and show the images nearest to their centres."""
    outliers: int | None = None
    """Find so many images with the lowest mean cosine with their ten nearest neighbours."""
    page: Path | None = None
    """Also write an HTML page with the images."""
    encoder: Path | None = None
    """Folder of the run or the exported encoder that made FILE, if it has moved. None: the folder that FILE names."""
    device: str = "auto"
    """Device, such as cpu or cuda:1. auto: the GPU if there is one."""
    trust: bool = False
    """Use images that FILE names, and code that its encoder names. What you made does not need it."""


def run(words: Sequence[str]) -> None:
    options = parse("neighbours", NeighboursOptions, words)
    modes = {"duplicates": options.duplicates, "clusters": options.clusters, "outliers": options.outliers}
    given = [f"`{name}`" for name, value in modes.items() if value is not None and value is not False]
    if len(given) + bool(options.query) > 1:
        raise UserError(f"pass either QUERY or one of {', '.join(f'`{name}`' for name in modes)}, not several")
    if options.threshold is not None and not options.duplicates:
        raise UserError(f"`threshold` applies to `duplicates` only: {'remove it' if given else 'pass it, too'}")
    if not given and not options.query:
        raise missing_argument("neighbours", "QUERY")
    from hypersphere.report.gallery import write_sections
    from hypersphere.util.files import check_file
    from hypersphere.util.trust import trust

    if options.page is not None:
        check_file(options.page, "page")
    if options.trust:
        trust(options.file)
    show = _duplicates if options.duplicates else _clusters if options.clusters is not None else _outliers
    title, about, sections = (_neighbours if options.query else show)(options)
    if options.page is not None:
        write_sections(options.page, title, about, sections, options.file)
        print(f"written to {options.page}: open it in a browser")
    else:
        print_next("neighbours", *words, "--page", f"{given[0][1:-1] if given else 'neighbours'}.html")


Page = tuple[str, str, "Sections"]  # title, text below it, sections


def _neighbours(options: NeighboursOptions) -> Page:
    from hypersphere.inference.neighbours import neighbours
    from hypersphere.report.gallery import NEIGHBOURS, neighbour_sections
    from hypersphere.util.text import printable

    count = 10 if options.count is None else options.count
    encoder, device = options.encoder, options.device
    found = neighbours(options.file, options.query, count=count, encoder=encoder, device=device, trust=options.trust)
    for one in found:
        print(f"{printable(one.query)}:")
        for path, cosine in one.neighbours:
            print(f"  {cosine:.4f}  {printable(path)}")
    return f"Nearest neighbours in {options.file}", NEIGHBOURS, neighbour_sections(found)


def _duplicates(options: NeighboursOptions) -> Page:
    from hypersphere.inference.structure import duplicates
    from hypersphere.report.gallery import sections_of
    from hypersphere.util.console import pluralize

    found = duplicates(options.file, options.threshold, device=options.device, progress=True)
    inside = sum(map(len, found.groups))
    sections = sections_of((pluralize(len(group), "image"), group) for group in found.groups)
    _print_sections(sections)
    total = (
        f"{pluralize(len(found.groups), 'group')} of near-duplicates with {inside:,} of {found.images:,} images, "
        f"{pluralize(found.pairs, 'pair')} with a cosine of at least {found.threshold:.4f}"
    )
    print(total)
    about = f"{total}. Below each image, its cosine with the most similar other image of its group."
    return f"Near-duplicates in {options.file}", about, sections


def _clusters(options: NeighboursOptions) -> Page:
    from hypersphere.inference.structure import clusters
    from hypersphere.report.gallery import sections_of
    from hypersphere.util.console import pluralize

    count = CLUSTER_IMAGES if options.count is None else options.count
    assert options.clusters is not None
    found = clusters(options.file, options.clusters, count, device=options.device, progress=True)
    sections = sections_of(
        (f"cluster {n}: {pluralize(one.size, 'image')}, mean cosine with the centre {one.cohesion:.4f}", one.images)
        for n, one in enumerate(found, 1)
    )
    _print_sections(sections)
    about = (
        "Clusters by spherical k-means, largest first: the images nearest to each centre, with their cosine with it."
    )
    return f"Clusters in {options.file}", about, sections


def _outliers(options: NeighboursOptions) -> Page:
    from hypersphere.inference.structure import NEIGHBOURS, outliers
    from hypersphere.report.gallery import sections_of

    assert options.outliers is not None
    found = outliers(options.file, options.outliers, device=options.device, progress=True)
    sections = sections_of([("outliers", found)])
    _print_sections(sections)
    about = (
        f"Images least like others first. Below each image, its mean cosine with its {NEIGHBOURS} nearest neighbours."
    )
    return f"Outliers in {options.file}", about, sections


def _print_sections(sections: "Sections") -> None:
    from hypersphere.util.text import printable

    for heading, pictures in sections:
        print(f"{heading}:")
        for one in pictures:
            print(f"  {one.caption}  {printable(one.path)}")
