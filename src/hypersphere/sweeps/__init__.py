"""Many runs at once, each in its own process, on this machine or on a Ray cluster.

A process that dies costs only its own run, which is restarted from its last checkpoint.

May import: config, data, diagnostics, errors, methods, probes, runs, util.
"""

from hypersphere.sweeps.loop import fan_out, time_left
from hypersphere.sweeps.work import FanOut, Work

__all__ = ["FanOut", "Work", "fan_out", "time_left"]
