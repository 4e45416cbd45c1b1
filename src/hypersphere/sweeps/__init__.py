"""Many runs at once, each in a process of its own, on this machine or on a Ray cluster.

A process that dies costs its own run only, which is taken up again from its last checkpoint.
"""

from hypersphere.sweeps.loop import fan_out, time_left
from hypersphere.sweeps.work import FanOut, Work

__all__ = ["FanOut", "Work", "fan_out", "time_left"]
