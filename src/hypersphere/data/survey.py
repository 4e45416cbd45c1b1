"""Summarize a set of image files from a sample of them: kinds, sizes and brightness."""

import contextlib
import io
import os
import warnings
from collections import Counter
from typing import NamedTuple

import numpy as np

from hypersphere.data.decode import WHITE, open_file, open_image
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
    brightest: int  # largest value of a 16-bit pixel; 0 if there are none
    white: int  # value of a 16-bit pixel that counts as white

    def __str__(self) -> str:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.kinds.items())
        low, median, high = self.sides
        verb = "is not an image" if self.unreadable == 1 else "are not images"
        broken = f"; {self.unreadable} of {self.looked_at} checked files {verb}" if self.unreadable else ""
        sides = f"shorter side {low} to {high} pixels (median {median})"
        return f"{self.images:,} images ({kinds}), {sides}{broken}{self._range_warning}"

    @property
    def _range_warning(self) -> str:
        """A warning if 16-bit pixels exceed white or stay far below it, such as those of 12-bit cameras."""
        if self.brightest > self.white:
            return f"; 16-bit pixels reach {self.brightest:,}: values above {self.white:,} (`white`) become white"
        if not 0 < 4 * self.brightest < self.white:
            return ""
        likely = max(255, 2 ** self.brightest.bit_length() - 1)
        dark = f"; 16-bit pixels reach only {self.brightest:,} of {self.white:,}, so images look dark"
        return f"{dark}: set `white`, such as {likely}"


def survey(files: Listing, white: int | None = None, looked_at: int = 200) -> Survey:
    """Read the headers of `looked_at` files, evenly spaced in the list.

    Raises:
        UserError: If none of them is an image.
    """
    sampled = (
        [files.paths[len(files) * n // looked_at] for n in range(looked_at)] if len(files) > looked_at else files.paths
    )
    sides, brightest = [], 0
    for path in sampled:
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            file = opened(path)
            with io.BytesIO(file) if isinstance(file, bytes) else open_file(file) as content:
                image = open_image(content)
                sides.append(min(image.size))
                if image.mode.startswith("I"):
                    brightest = max(brightest, int(np.asarray(image).max()))
    if not sides:
        raise UserError(f"none of {len(sampled)} checked files is an image, such as {printable(sampled[0])}")
    kinds = Counter(os.path.splitext(path)[1].lower().removeprefix(".") for path in files.paths)
    sides.sort()
    spread = (sides[0], sides[len(sides) // 2], sides[-1])
    unreadable = len(sampled) - len(sides)
    return Survey(len(files), dict(kinds.most_common()), spread, unreadable, len(sampled), brightest, white or WHITE)
