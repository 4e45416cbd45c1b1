"""Networks: encoders, heads, normalization, the moving-average target."""

from hypersphere.nn.ema import follow, target_of
from hypersphere.nn.encoders import ENCODERS, build_encoder, features_of
from hypersphere.nn.heads import mlp

__all__ = ["ENCODERS", "build_encoder", "features_of", "follow", "mlp", "target_of"]
