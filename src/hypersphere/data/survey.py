"""What a set of image files holds, by a look at some of them."""

import contextlib
import io
import os
import warnings
from collections import Counter
from typing import NamedTuple

import numpy as np

from hypersphere.data.decode import WHITE, open_file
from hypersphere.data.folder import Listing
from hypersphere.data.members import opened
from hypersphere.errors import UserError
from hypersphere.util.text import printable


class Survey(NamedTuple):
    """What a folder holds, by a look at some of its files."""

    images: int
    kinds: dict[str, int]  # how many files by suffix
    sides: tuple[int, int, int]  # least, median and greatest length of a shorter side, in pixels
    unreadable: int  # of those looked at
    looked_at: int
    brightest: int  # of their pixels that have 16 bits; 0: there are none
    white: int  # what such pixels are taken to reach

    def __str__(self) -> str:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.kinds.items())
        low, median, high = self.sides
        broken = f"; {self.unreadable} of {self.looked_at} looked at are no images" if self.unreadable else ""
        sides = f"the shorter side {low} to {high} pixels, {median} the median"
        return f"{self.images:,} images ({kinds}), {sides}{broken}{self._range_told}"

    @property
    def _range_told(self) -> str:
        """Where pixels go beyond white, or stay far below: those of cameras of 12 bits use a sixteenth of 16."""
        if self.brightest > self.white:
            return f"; 16 bits, up to {self.brightest:,}: all above {self.white:,} is white"
        if not 0 < 4 * self.brightest < self.white:
            return ""
        likely = max(255, 2 ** self.brightest.bit_length() - 1)
        dark = f"; 16 bits, none above {self.brightest:,}: dark, since white is {self.white:,}"
        return f"{dark} (set it by the option white, such as {likely})"


def survey(files: Listing, white: int | None = None, looked_at: int = 200) -> Survey:
    """Sizes are read from the heads of files spread evenly over the list."""
    from PIL import Image

    some = (
        [files.paths[len(files) * n // looked_at] for n in range(looked_at)] if len(files) > looked_at else files.paths
    )
    sides, brightest = [], 0
    for path in some:
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            file = opened(path)
            with io.BytesIO(file) if isinstance(file, bytes) else open_file(file) as content:
                image = Image.open(content)
                sides.append(min(image.size))
                if image.mode.startswith("I"):
                    brightest = max(brightest, int(np.asarray(image).max()))
    if not sides:
        raise UserError(f"none of {len(some)} files looked at is an image, such as {printable(some[0])}")
    kinds = Counter(os.path.splitext(path)[1].lower().removeprefix(".") for path in files.paths)
    sides.sort()
    spread = (sides[0], sides[len(sides) // 2], sides[-1])
    unreadable = len(some) - len(sides)
    return Survey(len(files), dict(kinds.most_common()), spread, unreadable, len(some), brightest, white or WHITE)
