"""Weights from the Hugging Face Hub on a machine without a network."""

import contextlib
import os
import socket
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit


@contextlib.contextmanager
def offline_if_unreachable() -> Iterator[None]:
    """Use only weights that were downloaded before if the name of the Hub cannot be resolved.

    huggingface_hub would try again for about a minute.
    """
    try:
        from huggingface_hub import constants
    except ImportError:
        yield
        return
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not _resolves(os.environ.get("HF_ENDPOINT") or constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _resolves(address: str) -> bool:
    """Whether the host of an address has a known name. A proxy, which resolves names itself, counts as a yes."""
    parts = urlsplit(address)
    if {parts.scheme, "all"} & urllib.request.getproxies().keys():
        return True
    with contextlib.suppress(OSError):
        return bool(socket.getaddrinfo(parts.hostname, parts.port or parts.scheme))
    return False
