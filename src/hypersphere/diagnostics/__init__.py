"""Measures of spread and collapse, energies by layer, densities on the circle, and findings about them.

May import `evaluate`, `nn`, `regularize`, `sphere` and everything below them.
"""

from hypersphere.diagnostics.circle import angle_counts, plane_density, von_mises_density
from hypersphere.diagnostics.cloud import Cloud, summarize, without_duplicates
from hypersphere.diagnostics.collapse import CollapseAlarm, SpreadMonitor, spread
from hypersphere.diagnostics.embeddings import Embeddings, of_array
from hypersphere.diagnostics.even import even_energy, even_uniformity
from hypersphere.diagnostics.findings import Finding, alignment_finding, findings_of, on_the_circle
from hypersphere.diagnostics.gradients import GradientMonitor, Losses, gradient_ratios
from hypersphere.diagnostics.layers import EnergyMonitor, block_outputs

__all__ = [
    "Cloud",
    "CollapseAlarm",
    "Embeddings",
    "EnergyMonitor",
    "Finding",
    "GradientMonitor",
    "Losses",
    "SpreadMonitor",
    "alignment_finding",
    "angle_counts",
    "block_outputs",
    "even_energy",
    "even_uniformity",
    "findings_of",
    "gradient_ratios",
    "of_array",
    "on_the_circle",
    "plane_density",
    "spread",
    "summarize",
    "von_mises_density",
    "without_duplicates",
]
