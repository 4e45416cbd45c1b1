"""Jobs of the programs of the pairwise kernels, as tables of integers, made once for given shapes.

A panel is the rows of one matrix, zero-padded to multiples of BLOCK rows and columns, with two 16-bit numbers for each
entry. One buffer holds all panels of a launch, another all slope matrices (rows of x × rows of y, padded too). If x and
y are the same panel and slopes are symmetric, only tiles on and above the diagonal exist; tiles below are read from
their mirror image.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 128  # panels are padded to multiples of it; tiles are BLOCK × BLOCK
LARGEST = 4096  # rows of a panel; larger matrices are split into panels
ROWS = 4  # rows of one job
CHUNKS = (1024, 2048, 4096, 8192)  # numbers of a row that a program holds at once: the smallest that fits
DEPTH = 2048  # points that one program sums over; more are summed in parts
RUN = 4  # tiles in a row for one program of log-sum-exp
SLOPES = 1 << 26  # entries of slope matrices held at once
APART = 1 << 24  # a diagonal outside of all tiles


def padded(n: int, to: int) -> int:
    return -(-n // to) * to


def spans(n: int, most: int) -> list[slice]:
    """0 to n in slices of at most `most`."""
    return [slice(start, min(start + most, n)) for start in range(0, n, most)]


class Shape(NamedTuple):
    """n points of d dimensions, and their padded sizes."""

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
        """Number of partial sums of a row's gradient."""
        return 1 if self.n > LARGEST else -(-self.rows // DEPTH)


class RowJob(NamedTuple):
    """ROWS rows of a matrix, from `row`; `panel` and `pull` are their positions in those buffers."""

    matrix: int
    row: int
    n: int
    d: int
    width: int
    panel: int
    pull: int
    parts: int
    part: int  # distance of the parts


class TileJob(NamedTuple):
    """BLOCK × BLOCK pairs of x and y: their cosines, potentials and slopes."""

    x: int
    y: int
    width: int
    rows: int  # existing rows, from the tile's first
    cols: int
    shift: int  # row r and column r + shift are the same point
    times: int  # weight of its potentials: 2 if pairs in the other order are in no tile
    slopes: int
    stride: int
    flag: int
    mirror: int
    value: int
    row: int


class PullJob(NamedTuple):
    """BLOCK × BLOCK entries of slopes @ points, summed over points begin to end; those before `split` are mirrored."""

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
    """ROWS points, and the tiles that may have near pairs with them."""

    own: int
    other: int
    width: int
    rows: int
    row: int
    tiles: int
    flag: int
    step: int  # distance of the flags of their tiles
    slopes: int
    stride: int
    split: int  # columns before it are mirrored
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
    """Rows that a program reads as one chunk, or longer ones in several chunks."""

    jobs: Tensor
    chunk: int
    whole: bool


def sorted_rows(jobs: Sequence[RowJob], device: torch.device) -> tuple[Rows, ...]:
    """Group rows by their length."""
    found = []
    bounds = [0, *CHUNKS, math.inf]
    for above, most in itertools.pairwise(bounds):
        some = [job for job in jobs if above < job.width <= most]
        if some:
            found.append(Rows(table(some, device), int(min(most, CHUNKS[-1])), most < math.inf))
    return tuple(found)


@dataclass(frozen=True)
class Pairing:
    """Panels x and y, and the positions of their data in each buffer."""

    x: Shape
    y: Shape
    x_at: int
    y_at: int
    slopes: int = 0
    flags: int = 0
    values: int = 0
    symmetric: bool = False  # x is y, and slopes are symmetric
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
        """Pulls on x by y, or on y by x; `points` is the position of the pulling panel, if not its own."""
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
        """Rows of tiles, RUN tiles at a time."""
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
    """Start of each matrix's gradient, and the end of the last."""
    places = [0]
    for shape in shapes:
        places.append(places[-1] + shape.parts * shape.size)
    return places


class Group(NamedTuple):
    """Jobs of layers whose slopes are in memory together."""

    tiles: Tensor
    pulls: Tensor
    near: Tensor
    slopes: int
    flags: int


class LayersPlan(NamedTuple):
    """Jobs of all layers with up to LARGEST rows."""

    rows: tuple[Rows, ...]
    panels: int
    groups: tuple[Group, ...]
    values: int  # per layer


@cache  # unbounded, as for all plans: tables that a CUDA graph reads must stay in memory
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
        pairing = replace(pairings[index], slopes=slopes, flags=flags, values=index * values)
        tile_jobs += pairing.tiles()
        pull_jobs += pairing.pulls(pulls[index], parts=pairing.x.parts)
        near_jobs += pairing.near(pulls[index], index * values + tiles[index])
        slopes += pairing.x.rows**2
        flags += pairing.grid[0] * pairing.grid[1]
    tile_jobs.sort(key=lambda job: -job.width)  # longest first
    pull_jobs.sort(key=lambda job: job.begin - job.end)
    return Group(table(tile_jobs, device), table(pull_jobs, device), table(near_jobs, device), slopes, flags)


class PairPlan(NamedTuple):
    """Jobs of one panel with another, or with itself."""

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
    """Panels x, y and, if `scaled`, x times a factor for each row, in this order; only x if symmetric."""
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
