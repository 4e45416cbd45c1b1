"""Frames of videos as images."""

import io
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hypersphere.data.bands import Unreadable, errors_as_unreadable
from hypersphere.util.optional import require

SUFFIXES = {".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".wmv", ".flv", ".ogv", ".3gp", ".mts"}
# Of FFmpeg's formats, those of `SUFFIXES`: others, such as playlists, may open further files or addresses.
SAFE = {"format_whitelist": "mov,mp4,avi,matroska,webm,mpeg,mpegts,asf,flv,ogg", "protocol_whitelist": "file"}
FRAME = re.compile(r"(?P<video>.*)::frame (?P<number>\d+) of (?P<count>\d+)", re.DOTALL)


def is_video(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in SUFFIXES and not name.startswith(".")


def frames_of(video: Path, count: int) -> list[str]:
    """Names of `count` frames of a video, evenly spaced: from its first to its last part."""
    return [f"{video}::frame {number} of {count}" for number in range(1, count + 1)]


def check_installed() -> None:
    require("av", "reading videos")


def read_frame(name: str) -> bytes:
    """A frame as the content of a .npy file, H × W × 3 bytes. The middle of the n-th of `count` equal parts.

    Raises:
        Unreadable: If the video cannot be read.
    """
    found = FRAME.fullmatch(name)
    assert found is not None
    check_installed()
    if not os.path.isfile(found["video"]):
        raise Unreadable("file not found")
    with errors_as_unreadable():
        frame = _frame(found["video"], (int(found["number"]) - 0.5) / int(found["count"]))
    file = io.BytesIO()
    np.save(file, frame)
    return file.getvalue()


def _frame(video: str, share: float) -> np.ndarray:
    """The frame at a share of the duration, or the last one before the end."""
    container, stream, duration = _opened(video, os.getpid())
    wanted, first = share * duration, float((stream.start_time or 0) * stream.time_base)
    container.seek(int((wanted + first) / stream.time_base), stream=stream)
    frame = None
    for frame in container.decode(stream):  # from the key frame before
        if frame.time is None or frame.time - first >= wanted:
            break
    if frame is None:
        raise Unreadable("it has no frames")
    return frame.to_ndarray(format="rgb24")


@lru_cache(maxsize=4)
def _opened(video: str, process: int) -> tuple[Any, Any, float]:
    """(container, first video stream, seconds). Frames of one video are often read one after the other."""
    import av

    container = av.open(video, options=SAFE)
    if not container.streams.video:
        raise Unreadable("it has no pictures")
    stream = container.streams.video[0]
    if stream.duration is not None and stream.time_base is not None:
        return container, stream, float(stream.duration * stream.time_base)
    if container.duration is None:
        raise Unreadable("its duration is unknown")
    return container, stream, container.duration / av.time_base
