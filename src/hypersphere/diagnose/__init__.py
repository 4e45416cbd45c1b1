"""What a representation looks like from inside: energies by layer, densities on the circle."""

from hypersphere.diagnose.circle import angle_counts, plane_density, von_mises_density
from hypersphere.diagnose.layers import EnergyMonitor, block_outputs

__all__ = ["EnergyMonitor", "angle_counts", "block_outputs", "plane_density", "von_mises_density"]
