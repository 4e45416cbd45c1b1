"""Networks: encoders, heads, normalization, the moving-average target."""

from hypersphere.nn.ema import follow, target_of
from hypersphere.nn.encoders import ENCODERS, build_encoder, check_encoder, features_of
from hypersphere.nn.heads import deep_mlp, mlp
from hypersphere.nn.meanwhile import meanwhile
from hypersphere.nn.norm import alike_everywhere, each_group, each_view, keep_views_apart

__all__ = [
    "ENCODERS",
    "alike_everywhere",
    "build_encoder",
    "check_encoder",
    "deep_mlp",
    "each_group",
    "each_view",
    "features_of",
    "follow",
    "keep_views_apart",
    "meanwhile",
    "mlp",
    "target_of",
]
