"""Encoders as transformers of scikit-learn, for pipelines, cross-validation and grid searches.

May import: data, errors, inference, runs, sphere, util.
"""

from hypersphere.sklearn.encoder import Encoder

__all__ = ["Encoder"]
