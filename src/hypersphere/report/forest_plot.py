"""The forest plot of the main claims: published and measured effects with their intervals.

The plot fits a phone. Protocols differ in marker as well as in colour.
"""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hypersphere.paper.cells import Protocol
from hypersphere.paper.claim import Claim
from hypersphere.paper.verdict import Verdict
from hypersphere.report.plots import COLOURS, drawing, save_svg
from hypersphere.report.summary import MainClaim

REACH = 4.5  # points of accuracy to either side; an effect beyond is drawn as an arrow
MARKERS = "os^v"  # of our effects, by protocol
LETTERS = 54  # per line of a claim's title
INCH = 0.165  # height of a line of text


class Line(NamedTuple):
    """One effect of a claim, and how it is drawn."""

    label: str
    mean: float
    half_width: float | None
    marker: str
    colour: str


def draw_forest(shown: Sequence[MainClaim], protocols: Sequence[Protocol], folder: Path) -> Path:
    """Draw claims about accuracy, and below them those about other metrics on their own scale, to `forest.svg`."""
    parts = [[one for one in shown if (one.claim.metric == "top-1") is accuracy] for accuracy in (True, False)]
    parts = [part for part in parts if part]
    heights = [sum(_height(one, protocols) for one in part) for part in parts]
    # numbers stand beside the frame: a constrained layout would shrink the frame to make room for them
    style = {"axes.grid": False, "axes.spines.left": False, "figure.constrained_layout.use": False}
    with drawing(**style) as pyplot:
        picture, axes = pyplot.subplots(
            len(parts), 1, figsize=(3.1, INCH * sum(heights) + 0.8 * len(parts)), height_ratios=heights, squeeze=False
        )
        picture.subplots_adjust(hspace=3.2 / sum(heights) * len(parts))
        for axis, part in zip(axes[:, 0], parts, strict=True):
            _draw(axis, part, protocols)
        return save_svg(picture, folder / "forest.svg")


def _title(claim: Claim) -> list[str]:
    return textwrap.wrap(claim.sentence, LETTERS)


def _height(shown: MainClaim, protocols: Sequence[Protocol]) -> float:
    """Height in lines: its title, its effects, and some room."""
    return len(_title(shown.claim)) + len(_lines(shown, protocols)) + 0.9


def _lines(shown: MainClaim, protocols: Sequence[Protocol]) -> list[Line]:
    return [*_published(shown.claim), *_ours(shown.verdicts, protocols)]


def _published(claim: Claim) -> Iterator[Line]:
    if claim.published is not None:
        half = claim.published_half_width
        yield Line(f"paper {_number(claim.published, half)}", claim.published, half, "D", "0.45")


def _ours(verdicts: dict[Protocol, Verdict], protocols: Sequence[Protocol]) -> Iterator[Line]:
    for protocol, marker, colour in zip(protocols, MARKERS, COLOURS, strict=False):
        if protocol in verdicts and (effect := verdicts[protocol].effect) is not None:
            number = _number(effect.mean, effect.half_width)
            label = f"{_short(protocol)} {number}, n {min(effect.n)}"
            yield Line(label, effect.mean, effect.half_width, marker, colour)


def _short(protocol: Protocol) -> str:
    return ("tuned" if protocol.tuned else "ours") + (f", {protocol.epochs} ep." if protocol.epochs else "")


def _number(mean: float, half_width: float | None) -> str:
    return (f"{mean:+z.2f}" + ("" if half_width is None else f" ± {half_width:.2f}")).replace("-", "−")


def _draw(axis: Any, part: Sequence[MainClaim], protocols: Sequence[Protocol]) -> None:
    accuracy = part[0].claim.metric == "top-1"
    lines = [line for one in part for line in _lines(one, protocols)]
    widest = max((abs(line.mean) + (line.half_width or 0) for line in lines), default=1.0)
    reach = REACH if accuracy else max(0.5, 1.25 * widest)
    at = 0.0
    for one in part:
        title, claimed = _title(one.claim), _lines(one, protocols)
        top = at + len(title) + 0.4
        bottom = top + max(1, len(claimed))
        side = (one.claim.bound, reach) if one.claim.direction > 0 else (-reach, one.claim.bound)
        axis.fill_between(side, top, bottom, color="0.9", lw=0)
        axis.plot((0, 0), (top, bottom), color="0.3", lw=0.8)
        axis.text(-reach, top - 0.15, "\n".join(title), va="bottom", fontsize=8.5, weight="bold", clip_on=False)
        for place, line in enumerate(claimed):
            _mark(axis, line, top + 0.5 + place, reach)
        at += _height(one, protocols)
    unit = "points of linear accuracy" if accuracy else "uniformity G2: lower is more uniform"
    axis.set(ylim=(at, 0), xlim=(-reach, reach), yticks=[], xlabel=f"effect, {unit}")


def _mark(axis: Any, line: Line, y: float, reach: float) -> None:
    """Draw an effect with its interval, and its number to the right of the frame."""
    axis.text(1.04 * reach, y, line.label, va="center", fontsize=8.5, color="0.15", clip_on=False)
    if abs(line.mean) > reach:
        side = 1 if line.mean > 0 else -1
        arrow = {"arrowstyle": "->", "color": line.colour, "lw": 1.4}
        axis.annotate("", (side * reach, y), (side * 0.88 * reach, y), arrowprops=arrow)
        return
    if line.half_width is not None:
        ends = (max(-reach, line.mean - line.half_width), min(reach, line.mean + line.half_width))
        axis.plot(ends, (y, y), color=line.colour, lw=1.4, solid_capstyle="butt")
    filled = line.half_width is not None
    axis.plot(line.mean, y, line.marker, color=line.colour, ms=4.5, mfc=line.colour if filled else "white")
