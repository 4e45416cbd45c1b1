"""Line charts as SVG, all runs over each other. Lines differ in dashes as well as in colour."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from hypersphere.report.templating import number, render, scientific

LEFT, RIGHT, TOP, BOTTOM = 50, 348, 46, 190  # of the frame in a drawing of 360 × 230
COLOURS, DASHES = 7, 5  # in page.css; together they distinguish 35 lines
MOST_DOTS = 40  # lines with more points have no dots

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Line:
    """The curve of one run.

    Attributes:
        label: Name of the run.
        place: Index of the run among all, which gives its colour and dashes.
        points: Pairs (x, y).
    """

    label: str
    place: int
    points: Points = ()

    @property
    def style(self) -> str:
        """CSS classes of its colour and dashes."""
        return f"colour-{self.place % COLOURS} dash-{self.place % DASHES}"


@dataclass(frozen=True)
class Scale:
    """A map from values to coordinates of the drawing.

    Attributes:
        low: Smallest value.
        high: Largest value.
        begin: Coordinate of `low`.
        end: Coordinate of `high`.
        logarithmic: Whether the map is logarithmic instead of linear.
        about: Approximate number of ticks.
        marks: Ticks with their labels, instead of round ones.
    """

    low: float
    high: float
    begin: float
    end: float
    logarithmic: bool = False
    about: int = 5
    marks: tuple[tuple[float, str], ...] = ()

    def __call__(self, value: float) -> float:
        low, high, at = (math.log10(v) if self.logarithmic else v for v in (self.low, self.high, value))
        return round(self.begin + (at - low) / (high - low) * (self.end - self.begin), 1)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Values with their labels."""
        ticks = log_ticks(self.low, self.high) if self.logarithmic else round_ticks(self.low, self.high, self.about)
        return list(self.marks) or ticks


def log_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Powers of ten with their labels; also 3 times these if there are few."""
    powers = range(math.floor(math.log10(low)), min(math.ceil(math.log10(high)), sys.float_info.max_10_exp) + 1)
    steps = (1, 3) if high / low < 1e4 else (1,)
    values = [step * 10.0**power for power in powers for step in steps]
    return [(v, f"{v:,g}" if 1e-3 <= v < 1e5 else scientific(v)) for v in values if low <= v <= high]


def round_ticks(low: float, high: float, about: int) -> list[tuple[float, str]]:
    """Round values (1, 2 or 5 times a power of ten apart) with their labels."""
    rough = (high - low) / about
    power = math.floor(math.log10(rough))
    step = next(m * 10.0**power for m in (1, 2, 5, 10) if m * 10.0**power >= rough * (1 - 1e-9))
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    places = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    large = max(abs(low), abs(high)) >= 1e5
    return [(at, scientific(at) if large else number(at, digits)) for at in (place * step for place in places)]


def fitted(values: Sequence[float], begin: float, end: float) -> Scale:
    """A scale with some room around the values; logarithmic if they differ by more than a factor of 30."""
    low, high = min(values), max(values)
    if low > 0 and high / low > 30:
        return Scale(low / 1.2, min(high * 1.2, sys.float_info.max), begin, end, logarithmic=True)
    room = max(0.06 * (high - low), 1e-3 * abs(low), 1e-3 * abs(high)) or 1.0  # at least so that ticks have few digits
    return Scale(low - room, high + room, begin, end)


def panel(title: str, unit: str, lines: Sequence[Line], along: str = "epoch") -> Markup:
    """One chart with its axes; its label says where each line ends."""
    x = Scale(0, max(max(at for at, _ in line.points) for line in lines) or 1, LEFT, RIGHT)
    y = fitted([value for line in lines for _, value in line.points], BOTTOM, TOP)
    about = {"title": title, "unit": unit, "along": along, "most_dots": MOST_DOTS}
    return render("panel.html", x=x, y=y, lines=lines, polyline=polyline, **about)


def polyline(points: Points, x: Scale, y: Scale) -> str:
    """The attribute `points` of an SVG polyline."""
    return " ".join(f"{x(at):g},{y(value):g}" for at, value in points)


def legend(labels: Sequence[str]) -> Markup:
    """The line of each run, in the order of the runs."""
    return render("legend.html", lines=[Line(label, place) for place, label in enumerate(labels)])
