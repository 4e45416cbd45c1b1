"""Encoders as transformers of scikit-learn, for pipelines, cross-validation and grid searches.

May import: data, inference, nn, runs, util.
"""

from hypersphere.sklearn.encoder import Encoder

__all__ = ["Encoder"]
