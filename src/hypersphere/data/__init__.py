"""Datasets: `Dataset.resolve` turns the option `data` into an object with one interface for all sources.

Contains the sources (named datasets, folders, tar files, arrays, dataset objects), splits, decoding, and loaders.

May import: distributed, errors, util, views.
"""

from hypersphere.data.dataset import Dataset, Split
from hypersphere.data.folder import Listing
from hypersphere.data.images import Images
from hypersphere.data.loader import Batch, Loader
from hypersphere.data.named_datasets import FILE_SOURCES, SOURCES, default_root, list_data, load_data
from hypersphere.data.options import DataSpec, Holdout
from hypersphere.data.splits import balanced

__all__ = [
    "FILE_SOURCES",
    "SOURCES",
    "Batch",
    "DataSpec",
    "Dataset",
    "Holdout",
    "Images",
    "Listing",
    "Loader",
    "Split",
    "balanced",
    "default_root",
    "list_data",
    "load_data",
]
