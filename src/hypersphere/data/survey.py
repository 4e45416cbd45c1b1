"""Summarize a set of image files from a sample of them: kinds, sizes and brightness."""

import io
import os
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from hypersphere.data.bands import range_warning
from hypersphere.data.decode import WHITE, ImageProperties, Unreadable, inspect_image, open_file
from hypersphere.data.folder import Listing
from hypersphere.data.tar_members import opened
from hypersphere.errors import UserError
from hypersphere.util.text import printable


class Survey(NamedTuple):
    """Summary of image files, from a sample of them."""

    images: int
    kinds: dict[str, int]  # suffix → number of files
    sides: tuple[int, int, int]  # smallest, median and largest shorter side, in pixels
    unreadable: int  # files of the sample that cannot be read
    looked_at: int  # files in the sample
    brightest: int  # largest value of a pixel of more than 8 bits; 0 if there are none
    white: int  # value of a 16-bit pixel that counts as white
    channels: int  # of each image; 3 if some are grey and some in colour
    stacks: int = 0  # files in the sample with several frames, of which the first is used

    def __str__(self) -> str:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.kinds.items())
        low, median, high = self.sides
        verb = "is not an image" if self.unreadable == 1 else "are not images"
        broken = f"; {self.unreadable} of {self.looked_at} checked files {verb}" if self.unreadable else ""
        sides = f"shorter side {low} to {high} pixels (median {median})"
        several = f", {self.channels} channels" * (self.channels not in (1, 3))
        frames = f"; {self.stacks} of {self.looked_at} checked files have several frames: the first is used"
        stacks = frames * (self.stacks > 0)
        return f"{self.images:,} images ({kinds}), {sides}{several}{broken}{stacks}"

    @property
    def warning(self) -> str:
        """See `range_warning`."""
        return range_warning(self.brightest, self.white)


def survey(files: Listing, white: int | None = None, looked_at: int = 200) -> Survey:
    """Look at `looked_at` files, evenly spaced in the list.

    Raises:
        UserError: If none of them is an image, or if they have different numbers of channels.
    """
    every = len(files) > looked_at
    sampled = [files.paths[len(files) * n // looked_at] for n in range(looked_at)] if every else files.paths
    seen: dict[Path | str, ImageProperties] = {}
    reason = ""
    for path in sampled:
        try:
            with warnings.catch_warnings(action="ignore"):
                seen[path] = _inspect(path)
        except Exception as error:  # decoders raise all kinds of errors
            reason = reason or (f" ({error})" if isinstance(error, Unreadable) else "")
    if not seen:
        raise UserError(f"none of {len(sampled)} checked files is an image, such as {printable(sampled[0])}{reason}")
    names = (str(path).partition("::frame ")[0] for path in files.paths)
    kinds = Counter(os.path.splitext(name)[1].lower().removeprefix(".") for name in names)
    sides = sorted(looks.side for looks in seen.values())
    return Survey(
        images=len(files),
        kinds=dict(kinds.most_common()),
        sides=(sides[0], sides[len(sides) // 2], sides[-1]),
        unreadable=len(sampled) - len(seen),
        looked_at=len(sampled),
        brightest=max(looks.brightest for looks in seen.values()),
        white=white or WHITE,
        channels=_same_channels(seen),
        stacks=sum(looks.frames > 1 for looks in seen.values()),
    )


def _inspect(path: Path | str) -> ImageProperties:
    file = opened(path)
    with io.BytesIO(file) if isinstance(file, bytes) else open_file(file) as content:
        return inspect_image(content)


def _same_channels(seen: Mapping[Path | str, ImageProperties]) -> int:
    """The number of channels of all images; 3 if some are grey and some in colour."""
    first: dict[int, Path | str] = {}
    for path, looks in seen.items():
        first.setdefault(looks.channels, path)
    if len(first) == 1 or first.keys() == {1, 3}:
        return max(first)
    found = " and ".join(f"{number} (such as {printable(path)})" for number, path in sorted(first.items()))
    raise UserError(f"images have different numbers of channels, {found}: keep images of one kind")
