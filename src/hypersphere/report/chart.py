"""Panels of lines as SVG, all runs over each other. Lines differ in dashes as well as in colour."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hypersphere.report.markup import Markup, element, joined, number, scientific

WIDTH, HEIGHT = 360, 230
LEFT, RIGHT, TOP, BOTTOM = 50, 348, 46, 190  # of the frame
COLOURS, DASHES = 7, 5  # in page.css; 35 lines are told apart
DOTS = 40  # a line of more points has none drawn


@dataclass(frozen=True)
class Line:
    label: str
    place: int  # of the run among all: its colour and dashes
    points: Sequence[tuple[float, float]]

    @property
    def style(self) -> str:
        return f"line colour-{self.place % COLOURS} dash-{self.place % DASHES}"


@dataclass(frozen=True)
class Scale:
    """From values to places of the drawing, straight or by logarithms."""

    low: float
    high: float
    begin: float
    end: float
    logarithmic: bool = False
    about: int = 5  # ticks
    marks: tuple[tuple[float, str], ...] = ()  # instead of those

    def __call__(self, value: float) -> float:
        low, high, at = (math.log10(v) if self.logarithmic else v for v in (self.low, self.high, value))
        return round(self.begin + (at - low) / (high - low) * (self.end - self.begin), 1)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Values and how they are written."""
        ticks = log_ticks(self.low, self.high) if self.logarithmic else round_ticks(self.low, self.high, self.about)
        return list(self.marks) or ticks


def log_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Powers of ten, with 3 times those where there are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 3) if high / low < 1e4 else (1,)
    values = [step * 10.0**power for power in powers for step in steps]
    return [(v, f"{v:,g}" if 1e-3 <= v < 1e5 else scientific(v)) for v in values if low <= v <= high]


def round_ticks(low: float, high: float, about: int) -> list[tuple[float, str]]:
    """Round values (1, 2 or 5 times a power of ten apart) and how they are written."""
    rough = (high - low) / about
    power = math.floor(math.log10(rough))
    step = next(m * 10.0**power for m in (1, 2, 5, 10) if m * 10.0**power >= rough * (1 - 1e-9))
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    places = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    large = max(abs(low), abs(high)) >= 1e5
    return [(at, scientific(at) if large else number(at, digits)) for at in (place * step for place in places)]


def fitted(values: Sequence[float], begin: float, end: float) -> Scale:
    """A scale with some room around the values; by logarithms where they differ by more than a factor of 30."""
    low, high = min(values), max(values)
    if low > 0 and high / low > 30:
        return Scale(low / 1.2, high * 1.2, begin, end, logarithmic=True)
    room = max(0.06 * (high - low), 1e-3 * abs(low), 1e-3 * abs(high)) or 1.0  # ticks of a few digits, whatever comes
    return Scale(low - room, high + room, begin, end)


def panel(title: str, unit: str, lines: Sequence[Line], along: str = "epoch") -> Markup:
    """One drawing with its axes; a figure that says in words where each line ends."""
    lines = [line for line in lines if line.points]
    x = Scale(0, max(max(at for at, _ in line.points) for line in lines) or 1, LEFT, RIGHT)
    y = fitted([value for line in lines for _, value in line.points], BOTTOM, TOP)
    ends = "; ".join(f"{line.label} ends at {_written(line.points[-1][1])}" for line in lines)
    drawing = element(
        "svg",
        element("text", title, x=LEFT, y=16, class_="title"),
        element("text", unit + (", logarithmic" if y.logarithmic else ""), x=LEFT, y=33, class_="unit"),
        axes(x, y, along),
        *(_drawn(line, x, y, along) for line in lines),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{title}, {unit}, by {along}: {ends}",
    )
    return element("figure", drawing, class_="panel")


def axes(x: Scale, y: Scale, along: str) -> Markup:
    parts = [element("line", x1=x.begin, x2=x.end, y1=y.begin, y2=y.begin, class_="axis")]
    for value, text in y.ticks:
        parts += [
            element("line", x1=x.begin, x2=x.end, y1=y(value), y2=y(value), class_="grid"),
            element("text", text, x=x.begin - 6, y=y(value) + 4, class_="tick", text_anchor="end"),
        ]
    for value, text in x.ticks:
        parts += [
            element("line", x1=x(value), x2=x(value), y1=y.begin, y2=y.begin + 4, class_="axis"),
            element("text", text, x=x(value), y=y.begin + 17, class_="tick", text_anchor="middle"),
        ]
    middle = (x.begin + x.end) / 2
    return joined(*parts, element("text", along, x=middle, y=y.begin + 34, class_="unit", text_anchor="middle"))


def _drawn(line: Line, x: Scale, y: Scale, along: str) -> Markup:
    points = " ".join(f"{x(at):g},{y(value):g}" for at, value in line.points)
    dots = line.points if len(line.points) <= DOTS else []
    return joined(
        element("polyline", points=points, class_=line.style),
        *(_dot(line, at, value, x, y, along) for at, value in dots),
    )


def _dot(line: Line, at: float, value: float, x: Scale, y: Scale, along: str) -> Markup:
    told = element("title", f"{line.label}, {along} {at:g}: {_written(value)}")
    return element("circle", told, cx=x(at), cy=y(value), r=2.2, class_=f"dot colour-{line.place % COLOURS}")


def _written(value: float) -> str:
    return f"{value:.4g}".replace("-", "−")


def legend(labels: Sequence[str]) -> Markup:
    """Which line is whose."""
    entries = []
    for place, label in enumerate(labels):
        sample = element("line", x1=1, x2=39, y1=6, y2=6, class_=Line(label, place, ()).style)
        key = element("svg", sample, viewBox="0 0 40 12", class_="key", aria_hidden="true")
        entries.append(element("li", key, " ", label))
    return element("ul", *entries, class_="legend")
