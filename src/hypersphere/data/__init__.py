"""Data sets, their splits, and images in memory or in files."""

from hypersphere.data.folder import Listing
from hypersphere.data.memory import Images
from hypersphere.data.sources import FILE_SOURCES, SOURCES, Holdout, default_root, list_data, load_data
from hypersphere.data.splits import balanced

__all__ = [
    "FILE_SOURCES",
    "SOURCES",
    "Holdout",
    "Images",
    "Listing",
    "balanced",
    "default_root",
    "list_data",
    "load_data",
]
