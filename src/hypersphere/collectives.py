"""Moved to `hypersphere.distributed`."""

import warnings

from hypersphere.distributed.collectives import *  # noqa: F403

warnings.warn("hypersphere.collectives has moved to hypersphere.distributed", DeprecationWarning, stacklevel=2)
