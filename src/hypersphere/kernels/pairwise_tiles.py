"""Which rows and tiles each program of the pairwise kernels takes: tables of integers, made once for given shapes.

A panel is the rows of one matrix, padded to BLOCK rows and to BLOCK columns with zeros; it takes two 16-bit numbers for
each entry. All panels of a launch lie in one buffer, all slope matrices (rows of x × rows of y, padded likewise) in
another. When x and y are the same panel and slopes symmetric, only tiles on and above the diagonal of blocks exist;
what lies below is read from its mirror image.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 128  # panels are padded to it; tiles of products with the slopes are BLOCK × BLOCK
LARGEST = 4096  # rows of a panel; more points are taken panel by panel
ROWS = 4  # rows of one job
CHUNKS = (1024, 2048, 4096, 8192)  # numbers of a row that a program holds at once; a row goes to the least that fits
DEPTH = 2048  # points that one program sums over; more are summed in parts
RUN = 4  # tiles in a row whose log-sum-exp one program takes
SLOPES = 1 << 26  # entries of slope matrices held at once
APART = 1 << 24  # a diagonal that no tile meets


def padded(n: int, to: int) -> int:
    return -(-n // to) * to


class Shape(NamedTuple):
    """n points of d dimensions, and what they are padded to."""

    n: int
    d: int

    @property
    def rows(self) -> int:
        return padded(self.n, BLOCK)

    @property
    def width(self) -> int:
        return padded(self.d, BLOCK)

    @property
    def size(self) -> int:
        return self.rows * self.width

    @property
    def panel(self) -> int:
        """Size of the packed rows."""
        return 2 * self.size

    @property
    def parts(self) -> int:
        """How many sums a row's gradient comes in."""
        return 1 if self.n > LARGEST else -(-self.rows // DEPTH)


class RowJob(NamedTuple):
    """ROWS rows of a matrix, from `row`; `panel` and `pull` are where the first of them lies in those buffers."""

    matrix: int
    row: int
    n: int
    d: int
    width: int
    panel: int
    pull: int
    parts: int
    part: int  # from one part to the next


class TileJob(NamedTuple):
    """BLOCK × BLOCK pairs of x and y: their cosines, potentials and slopes."""

    x: int
    y: int
    width: int
    rows: int  # that exist, from the tile's first
    cols: int
    shift: int  # row r and column r + shift are one point
    times: int  # of its sum of potentials: 2 if the pairs in the other order are in no tile
    slopes: int
    stride: int
    flag: int
    mirror: int
    value: int
    row: int


class PullJob(NamedTuple):
    """BLOCK × BLOCK entries of slopes @ points, summed over points begin … end, the first of them read mirrored."""

    straight: int
    mirrored: int
    stride: int
    points: int
    width: int
    begin: int
    split: int
    end: int
    target: int


class LogSumJob(NamedTuple):
    """log-sum-exp of BLOCK rows of x over `cols` columns of y."""

    x: int
    y: int
    width: int
    rows: int
    cols: int
    shift: int
    target: int


class NearJob(NamedTuple):
    """ROWS points, and the tiles of their pairs with others in which some pair is near."""

    own: int
    other: int
    width: int
    rows: int
    row: int
    tiles: int
    flag: int
    step: int  # from one of their tiles' flags to the next
    slopes: int
    stride: int
    split: int  # columns before it are read mirrored
    pull: int
    value: int


def table(jobs: Iterable[NamedTuple], device: torch.device) -> Tensor:
    return torch.tensor([list(job) for job in jobs], dtype=torch.int64).to(device)


def row_jobs(matrix: int, shape: Shape, panel: int = 0, pull: int = 0, padding: bool = True) -> Iterator[RowJob]:
    n, d, width = shape.n, shape.d, shape.width
    for row in range(0, shape.rows if padding else n, ROWS):
        at = row * width
        yield RowJob(matrix, row, n, d, width, panel + 2 * at, pull + at, shape.parts, shape.size)


class Rows(NamedTuple):
    """Rows that a program takes whole, `chunk` numbers; or, longer ones, in several chunks."""

    jobs: Tensor
    chunk: int
    whole: bool


def sorted_rows(jobs: Sequence[RowJob], device: torch.device) -> tuple[Rows, ...]:
    """By their length."""
    found = []
    bounds = [0, *CHUNKS, math.inf]
    for above, most in itertools.pairwise(bounds):
        some = [job for job in jobs if above < job.width <= most]
        if some:
            found.append(Rows(table(some, device), int(min(most, CHUNKS[-1])), most < math.inf))
    return tuple(found)


@dataclass(frozen=True)
class Pairing:
    """Panels x and y, and where what belongs to their pairs begins in each buffer."""

    x: Shape
    y: Shape
    x_at: int
    y_at: int
    slopes: int = 0
    flags: int = 0
    values: int = 0
    symmetric: bool = False  # x is y, and so are their slopes
    skip_self: bool = False

    @property
    def grid(self) -> tuple[int, int]:
        return self.x.rows // BLOCK, self.y.rows // BLOCK

    def tiles(self) -> Iterator[TileJob]:
        width, stride, across = self.x.width, self.y.rows, self.grid[1]
        value = self.values
        for i, a in enumerate(range(0, self.x.rows, BLOCK)):
            for j, b in enumerate(range(0, self.y.rows, BLOCK)):
                if self.symmetric and i > j:
                    continue
                yield TileJob(
                    x=self.x_at + 2 * a * width, y=self.y_at + 2 * b * width, width=width,
                    rows=self.x.n - a, cols=self.y.n - b, shift=a - b if self.skip_self else APART,
                    times=1 if self.symmetric and i == j else 2, slopes=self.slopes + a * stride + b, stride=stride,
                    flag=self.flags + i * across + j,
                    mirror=self.flags + (j * across + i if self.symmetric else i * across + j),
                    value=value, row=a,
                )  # fmt: skip
                value += 1

    def pulls(self, target: int, *, parts: int = 1, on_y: bool = False, points: int | None = None) -> Iterator[PullJob]:
        """On x by y, or on y by x; `points` is where the panel that pulls lies, if not in its own place."""
        own, other = (self.y, self.x) if on_y else (self.x, self.y)
        points = (self.x_at if on_y else self.y_at) if points is None else points
        stride, depth = self.y.rows, padded(other.n, BLOCK // 2)
        for part in range(parts):
            begin, end = (share * depth // parts // BLOCK * BLOCK for share in (part, part + 1))
            for row in range(0, own.rows, BLOCK):
                split = row if self.symmetric else (other.rows if on_y else 0)
                for col in range(0, own.width, BLOCK):
                    yield PullJob(
                        straight=self.slopes + row * stride, mirrored=self.slopes + row, stride=stride,
                        points=points + 2 * col, width=own.width,
                        begin=begin, split=split, end=depth if part == parts - 1 else end,
                        target=target + part * own.size + row * own.width + col,
                    )  # fmt: skip

    def log_sums(self) -> Iterator[LogSumJob]:
        """A row of tiles in runs of a few."""
        width, size = self.x.width, RUN * BLOCK
        for run, b in enumerate(range(0, self.y.rows, size)):
            for a in range(0, self.x.rows, BLOCK):
                yield LogSumJob(
                    x=self.x_at + 2 * a * width, y=self.y_at + 2 * b * width, width=width, rows=self.x.n - a,
                    cols=min(self.y.n - b, size), shift=a - b if self.skip_self else APART,
                    target=run * self.x.n + a,
                )  # fmt: skip

    @property
    def runs(self) -> int:
        return -(-self.y.rows // (RUN * BLOCK))

    def near(self, pull: int, value: int, on_y: bool = False) -> Iterator[NearJob]:
        own, other = (self.y, self.x) if on_y else (self.x, self.y)
        across = self.grid[1]
        for row in range(0, own.n, ROWS):
            index = row // BLOCK
            yield NearJob(
                own=(self.y_at if on_y else self.x_at) + 2 * row * own.width, other=self.x_at if on_y else self.y_at,
                width=own.width, rows=own.n - row, row=row, tiles=self.grid[0] if on_y else across,
                flag=self.flags + (index if on_y else index * across), step=across if on_y else 1,
                slopes=self.slopes, stride=self.y.rows,
                split=index * BLOCK if self.symmetric else (other.rows if on_y else 0),
                pull=pull + row * own.width, value=value + row,
            )  # fmt: skip


def pull_places(shapes: Sequence[Shape]) -> list[int]:
    """Where each matrix's gradient begins, and where the last one ends."""
    places = [0]
    for shape in shapes:
        places.append(places[-1] + shape.parts * shape.size)
    return places


class Group(NamedTuple):
    """Layers whose slopes are held at once."""

    tiles: Tensor
    pulls: Tensor
    near: Tensor
    slopes: int
    flags: int


class LayersPlan(NamedTuple):
    """All layers of up to LARGEST rows."""

    rows: tuple[Rows, ...]
    panels: int
    groups: tuple[Group, ...]
    values: int  # per layer


@cache  # without bound, as all plans: what a recorded CUDA graph reads must stay
def layers_plan(shapes: tuple[Shape, ...], pulls: tuple[int, ...], device: torch.device) -> LayersPlan:
    rows: list[RowJob] = []
    panels = 0
    pairings: list[Pairing] = []
    for index, shape in enumerate(shapes):
        rows += row_jobs(index, shape, panels)
        pairings.append(Pairing(shape, shape, panels, panels, symmetric=True, skip_self=True))
        panels += shape.panel
    tiles = [sum(1 for _ in pairing.tiles()) for pairing in pairings]
    values = max(count + shape.n for count, shape in zip(tiles, shapes, strict=True))
    groups = [_group(part, pairings, tiles, pulls, values, device) for part in _grouped(shapes)]
    return LayersPlan(sorted_rows(rows, device), panels, tuple(groups), values)


def _grouped(shapes: Sequence[Shape]) -> Iterator[list[int]]:
    part: list[int] = []
    held = 0
    for index, shape in enumerate(shapes):
        if part and held + shape.rows**2 > SLOPES:
            yield part
            part, held = [], 0
        part.append(index)
        held += shape.rows**2
    yield part


def _group(
    part: list[int],
    pairings: list[Pairing],
    tiles: list[int],
    pulls: tuple[int, ...],
    values: int,
    device: torch.device,
) -> Group:
    tile_jobs: list[TileJob] = []
    pull_jobs: list[PullJob] = []
    near_jobs: list[NearJob] = []
    slopes = flags = 0
    for index in part:
        old = pairings[index]
        pairing = Pairing(old.x, old.y, old.x_at, old.y_at, slopes, flags, index * values, True, True)
        tile_jobs += pairing.tiles()
        pull_jobs += pairing.pulls(pulls[index], parts=pairing.x.parts)
        near_jobs += pairing.near(pulls[index], index * values + tiles[index])
        slopes += pairing.x.rows**2
        flags += pairing.grid[0] * pairing.grid[1]
    tile_jobs.sort(key=lambda job: -job.width)  # what takes longest begins first
    pull_jobs.sort(key=lambda job: job.begin - job.end)
    return Group(table(tile_jobs, device), table(pull_jobs, device), table(near_jobs, device), slopes, flags)


class PairPlan(NamedTuple):
    """One panel with another, or with itself."""

    rows: tuple[Rows, ...]
    panels: int
    tiles: Tensor
    pulls_on_x: Tensor
    pulls_on_y: Tensor
    near_x: Tensor
    near_y: Tensor
    slopes: int
    flags: int
    values: int


@cache
def pair_plan(x: Shape, y: Shape, symmetric: bool, skip_self: bool, scaled: bool, device: torch.device) -> PairPlan:
    """Panels x, y and, if `scaled`, x again, times a factor for each row, in this order; x alone if symmetric."""
    y_at = 0 if symmetric else x.panel
    pairing = Pairing(x, y, 0, y_at, symmetric=symmetric, skip_self=skip_self)
    rows = [*row_jobs(0, x)]
    panels = x.panel
    if not symmetric:
        rows += row_jobs(1, y, y_at)
        panels += y.panel
    if scaled:
        rows += row_jobs(2, x, panels)
    tiles = list(pairing.tiles())
    near_x = pairing.near(0, len(tiles))
    near_y = [] if symmetric else pairing.near(0, len(tiles) + x.n, on_y=True)
    on_y = [] if symmetric else pairing.pulls(0, on_y=True, points=panels if scaled else None)
    return PairPlan(
        sorted_rows(rows, device), panels + x.panel * scaled, table(tiles, device),
        table(pairing.pulls(0), device), table(on_y, device), table(near_x, device), table(near_y, device),
        x.rows * y.rows, pairing.grid[0] * pairing.grid[1], len(tiles) + x.n + (0 if symmetric else y.n),
    )  # fmt: skip


class LogSumPlan(NamedTuple):
    rows: tuple[Rows, ...]
    panels: int
    sums: Tensor
    runs: int


@cache
def log_sum_plan(x: Shape, y: Shape, skip_self: bool, device: torch.device) -> LogSumPlan:
    pairing = Pairing(x, y, 0, x.panel, skip_self=skip_self)
    rows = [*row_jobs(0, x), *row_jobs(1, y, x.panel)]
    return LogSumPlan(sorted_rows(rows, device), x.panel + y.panel, table(pairing.log_sums(), device), pairing.runs)


@cache
def finish_plan(shapes: tuple[Shape, ...], device: torch.device) -> tuple[Rows, ...]:
    places = pull_places(shapes)
    rows = [row_jobs(index, shape, 0, places[index], padding=False) for index, shape in enumerate(shapes)]
    return sorted_rows([job for part in rows for job in part], device)
