"""Measures of spread and collapse, energies by layer, densities on the circle, and findings about them.

May import: errors, evaluate, kernels, nn, regularize, sphere, util.
"""

from hypersphere.diagnostics.circle import angle_counts, plane_density, von_mises_density
from hypersphere.diagnostics.collapse import CollapseAlarm, SpreadMonitor
from hypersphere.diagnostics.gradients import GradientMonitor, Losses
from hypersphere.diagnostics.layers import EnergyMonitor

__all__ = [
    "CollapseAlarm",
    "EnergyMonitor",
    "GradientMonitor",
    "Losses",
    "SpreadMonitor",
    "angle_counts",
    "plane_density",
    "von_mises_density",
]
