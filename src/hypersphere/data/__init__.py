"""Data sets, their splits, and images in memory."""

from hypersphere.data.memory import Images
from hypersphere.data.sources import SOURCES, Holdout, default_root, load_data
from hypersphere.data.splits import balanced

__all__ = ["SOURCES", "Holdout", "Images", "balanced", "default_root", "load_data"]
