"""What a representation looks like from inside: points on the sphere, energies by layer, densities on the circle."""

from hypersphere.diagnostics.circle import angle_counts, plane_density, von_mises_density
from hypersphere.diagnostics.cloud import Cloud, Measured, distinct, gather
from hypersphere.diagnostics.collapse import CollapseAlarm, SpreadMonitor, spread
from hypersphere.diagnostics.embeddings import Embeddings, of_array
from hypersphere.diagnostics.even import even_energy, even_uniformity
from hypersphere.diagnostics.findings import Finding, aligned, findings_of, on_the_circle
from hypersphere.diagnostics.gradients import GradientMonitor, Losses, gradient_ratios
from hypersphere.diagnostics.layers import EnergyMonitor, block_outputs
from hypersphere.nn.blocks import blocks_of
from hypersphere.sphere import rankme as rank_me

__all__ = [
    "Cloud",
    "CollapseAlarm",
    "Embeddings",
    "EnergyMonitor",
    "Finding",
    "GradientMonitor",
    "Losses",
    "Measured",
    "SpreadMonitor",
    "aligned",
    "angle_counts",
    "block_outputs",
    "blocks_of",
    "distinct",
    "even_energy",
    "even_uniformity",
    "findings_of",
    "gather",
    "gradient_ratios",
    "of_array",
    "on_the_circle",
    "plane_density",
    "rank_me",
    "spread",
    "von_mises_density",
]
