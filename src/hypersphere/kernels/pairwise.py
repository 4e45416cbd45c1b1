"""Mean potentials of many layers with their gradients, and row log-sum-exps: launches of `pairwise_kernels`.

The reference is `hypersphere.sphere.pairwise`. Matrices are float32, with contiguous rows; the order of entries in a
row does not matter. Matrices with more than `largest` rows are processed panel by panel, which bounds the memory beyond
the gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hypersphere.kernels import pairwise_kernels as kernels
from hypersphere.kernels import pairwise_tiles as tiles
from hypersphere.kernels.pairwise_tiles import Shape, spans
from hypersphere.kernels.potentials import KINDS

ARGUMENTS = 256  # addresses per launch
NEAR_CHUNK = 1024  # entries of two near points held at once
# Two programs fit into the registers and shared memory of a Hopper multiprocessor, so that one computes potentials
# while the other computes products.
SLOPES: dict[str, Any] = {"DEPTH": 64, "num_warps": 8, "num_stages": 2}
PULL: dict[str, Any] = {"DEPTH": 64, "num_warps": 4, "num_stages": 3}


@dataclass(frozen=True)
class Law:
    """A potential for the kernels. Pairs with chord² (or anti²) below near2 are near; slopes are stored · `scale`."""

    kind: str
    s: float
    half_space: bool
    floor2: float
    near2: float
    scale: float

    @property
    def constants(self) -> dict[str, Any]:
        constant = 0.0 if self.kind == "softmax" else self.s  # not compiled in: a temperature may change at each step
        return {"KIND": KINDS[self.kind], "S": constant, "FLOOR2": self.floor2, "HALF_SPACE": self.half_space}


def pair_sums(
    weights: Sequence[Tensor], law: Law, with_pull: bool, largest: int = tiles.LARGEST
) -> tuple[Tensor, Tensor]:
    """Sum of φ over ordered pairs of each matrix, in float64, and the gradient by all unit rows (the pull)."""
    device = weights[0].device
    shapes = [Shape(len(w), w[0].numel()) for w in weights]
    places = tiles.pull_places(shapes)
    pull = torch.empty(places[-1] if with_pull else 0, device=device)
    sums: dict[int, Tensor] = {}
    small = [i for i, shape in enumerate(shapes) if shape.n <= largest]
    with torch.cuda.device_of(weights[0]):
        if small:
            starts = tuple(places[i] for i in small)
            found = _layers([weights[i] for i in small], tuple(shapes[i] for i in small), starts, law, pull, with_pull)
            if len(small) == len(weights):
                return found, pull
            sums.update(zip(small, found, strict=True))
        for i, shape in enumerate(shapes):
            if shape.n > largest:
                part = pull[places[i] : places[i + 1]]
                sums[i] = _panel_by_panel(weights[i], shape, law, part, with_pull, largest)
    return torch.stack([sums[i] for i in range(len(weights))]), pull


def _layers(
    weights: list[Tensor], shapes: tuple[Shape, ...], starts: tuple[int, ...], law: Law, pull: Tensor, with_pull: bool
) -> Tensor:
    device = pull.device
    plan = tiles.layers_plan(shapes, starts, device)
    values = torch.zeros(len(shapes), plan.values, device=device)
    points = _pack(plan.rows, weights, plan.panels)
    for group in plan.groups:
        slopes, flags = _scratch(group, device)
        _slopes(group.tiles, points, slopes, flags, values, law)
        if with_pull:
            _pull(group.pulls, points, slopes, pull, law)
        _near(group.near, points, slopes, flags, pull, values, law, with_pull)
    return values.sum(1, dtype=torch.float64)


def _panel_by_panel(w: Tensor, shape: Shape, law: Law, pull: Tensor, with_pull: bool, largest: int) -> Tensor:
    """Each pair of panels a ≤ b once: slopes S pull on a, and Sᵀ on b."""
    device, d = w.device, shape.d
    panels = spans(shape.n, largest)
    pull.zero_()
    total = torch.zeros((), dtype=torch.float64, device=device)
    for a, rows in enumerate(panels):
        for cols in panels[a:]:
            same = rows == cols
            x, y = w[rows], w[cols]
            plan = tiles.pair_plan(Shape(len(x), d), Shape(len(y), d), same, same, False, device)
            values = torch.empty(plan.values, device=device)
            points = _pack(plan.rows, [x] if same else [x, y], plan.panels)
            slopes, flags = _scratch(plan, device)
            _slopes(plan.tiles, points, slopes, flags, values, law)
            sides = [(plan.pulls_on_x, plan.near_x, rows.start)]
            sides += [] if same else [(plan.pulls_on_y, plan.near_y, cols.start)]
            for side, (pulls, near, start) in enumerate(sides):
                on_side = pull[start * shape.width :]
                if with_pull:
                    _pull(pulls, points, slopes, on_side, law, add=True)
                _near(near, points, slopes, flags, on_side, values, law, with_pull, on_y=side == 1)
            total += values.sum(dtype=torch.float64)
    return total


def weight_gradients(weights: Sequence[Tensor], pull: Tensor, upstream: Tensor, factors: Tensor) -> list[Tensor]:
    """Gradients of the weights from the pull of `pair_sums`, times upstream · factors of each matrix."""
    gradients = [torch.empty_like(w) for w in weights]
    rows = tiles.finish_plan(tuple(Shape(len(w), w[0].numel()) for w in weights), pull.device)
    with torch.cuda.device_of(pull):
        addresses, upstream = _addresses([*weights, *gradients]), upstream.contiguous()
        for jobs, chunk, whole in rows:
            kernels.finish_kernel[(len(jobs) * tiles.ROWS,)](
                jobs, addresses, pull, upstream, factors, len(weights),
                ROWS=tiles.ROWS, CHUNK=chunk, WHOLE=whole, num_warps=_warps(chunk),
            )  # fmt: skip
    return gradients


def row_logsumexp(x: Tensor, y: Tensor, scale: float, exclude_self: bool, largest: int = tiles.LARGEST) -> Tensor:
    """log Σⱼ exp(scale · xᵢ·yⱼ) for each row of x; all rows are unit vectors."""
    total = torch.full((len(x),), -torch.inf, device=x.device)
    with torch.cuda.device_of(x):
        for rows in spans(len(x), largest):
            for cols in spans(len(y), largest):
                own, other = x[rows], y[cols]
                skip_self = exclude_self and rows.start == cols.start
                shapes = Shape(*own.shape), Shape(*other.shape)
                plan = tiles.log_sum_plan(*shapes, skip_self, x.device)
                sums = torch.empty(plan.runs, len(own), device=x.device)
                points = _pack(plan.rows, [own, other], plan.panels, normalize=False)
                kernels.log_sums_kernel[(len(plan.sums),)](plan.sums, points, sums, float(scale), **SLOPES)
                total[rows] = torch.logaddexp(total[rows], sums.logsumexp(0))
    return total


def row_logsumexp_backward(
    x: Tensor, y: Tensor, total: Tensor, upstream: Tensor, scale: float, exclude_self: bool,
    near2: float, largest: int = tiles.LARGEST,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients by x and y: P Y and Pᵀ (upstream ∘ X) of the softmax P, up to multiples of a point."""
    law = Law("softmax", float(scale), False, 0.0, near2, 2.0**15)
    greatest = upstream.abs().amax().clamp(min=torch.finfo(torch.float32).tiny)
    gains = upstream / greatest  # at most 1, in the range of 16 bits
    on_x, on_y = (torch.zeros(Shape(*points.shape).size, device=x.device) for points in (x, y))
    width = Shape(*x.shape).width
    with torch.cuda.device_of(x):
        for rows in spans(len(x), largest):
            for cols in spans(len(y), largest):
                own, other, gain, sums = x[rows], y[cols], gains[rows], total[rows]
                shapes = Shape(*own.shape), Shape(*other.shape)
                plan = tiles.pair_plan(*shapes, False, exclude_self and rows.start == cols.start, True, x.device)
                points = _pack(plan.rows, [own, other, own], plan.panels, normalize=False, gains=gain)
                values = torch.empty(plan.values, device=x.device)
                slopes, flags = _scratch(plan, x.device)
                _slopes(plan.tiles, points, slopes, flags, values, law, sums)
                for pulls, near, pull, side in (
                    (plan.pulls_on_x, plan.near_x, on_x[rows.start * width :], False),
                    (plan.pulls_on_y, plan.near_y, on_y[cols.start * width :], True),
                ):
                    _pull(pulls, points, slopes, pull, law, add=True)
                    _near(near, points, slopes, flags, pull, values, law, True, side, sums, gain)
    grad_x = on_x.view(-1, width)[: len(x), : x.shape[1]] * (scale * upstream)[:, None]
    return grad_x, on_y.view(-1, width)[: len(y), : y.shape[1]] * (scale * greatest)


def _addresses(matrices: Sequence[Tensor]) -> Tensor:
    table = torch.empty(len(matrices), dtype=torch.int64, device=matrices[0].device)
    where = [matrix.data_ptr() for matrix in matrices]
    for start in range(0, len(where), ARGUMENTS):
        kernels.write_addresses[(1,)](table[start:], tuple(where[start : start + ARGUMENTS]), num_warps=1)
    return table


def _scratch(plan: tiles.Group | tiles.PairPlan, device: torch.device) -> tuple[Tensor, Tensor]:
    """Memory for slopes and flags."""
    slopes = torch.empty(plan.slopes, dtype=torch.float16, device=device)
    return slopes, torch.empty(plan.flags, dtype=torch.int32, device=device)


def _pack(
    rows: tuple[tiles.Rows, ...], matrices: list[Tensor], size: int, *, normalize: bool = True,
    gains: Tensor | None = None,
) -> Tensor:  # fmt: skip
    points = torch.empty(size, dtype=torch.float16, device=matrices[0].device)
    addresses = _addresses(matrices)
    for jobs, chunk, whole in rows:
        kernels.pack[(len(jobs) * tiles.ROWS,)](
            jobs, addresses, gains, points, NORMALIZE=normalize, SCALED=gains is not None,
            ROWS=tiles.ROWS, CHUNK=chunk, WHOLE=whole, num_warps=_warps(chunk),
        )  # fmt: skip
    return points


def _warps(chunk: int) -> int:
    """For 8 or 16 numbers per thread."""
    return max(4, min(16, chunk // 256 if chunk <= 2048 else chunk // 512))


def _slopes(
    jobs: Tensor, points: Tensor, slopes: Tensor, flags: Tensor, values: Tensor, law: Law,
    totals: Tensor | None = None,
) -> None:  # fmt: skip
    kernels.slopes_kernel[(len(jobs),)](
        jobs,
        points,
        slopes,
        flags,
        values,
        totals,
        float(law.s),
        **law.constants,
        NEAR2=law.near2,
        SCALE=law.scale,
        **SLOPES,
    )


def _pull(jobs: Tensor, points: Tensor, slopes: Tensor, pull: Tensor, law: Law, add: bool = False) -> None:
    kernels.pull_kernel[(len(jobs),)](jobs, points, slopes, pull, 1 / law.scale, ADD=add, **PULL)


def _near(
    jobs: Tensor, points: Tensor, slopes: Tensor, flags: Tensor, pull: Tensor, values: Tensor, law: Law,
    with_pull: bool, on_y: bool = False, totals: Tensor | None = None, gains: Tensor | None = None,
) -> None:  # fmt: skip
    kernels.near_kernel[(len(jobs) * tiles.ROWS,)](
        jobs, points, slopes, flags, pull, values, totals, gains, float(law.s), **law.constants,
        PULL=with_pull, ON_Y=on_y and totals is not None, ROWS=tiles.ROWS,
        TILES=tiles.LARGEST // tiles.BLOCK, CHUNK=NEAR_CHUNK, num_warps=4,
    )  # fmt: skip
