"""Networks: encoders by name, heads, normalization, the EMA target, and starting weights from files.

`each_view` runs a network on several views, with batch statistics of each view; all methods use it.

May import `distributed`, `kernels` and `util`.
"""

from hypersphere.nn.ema import follow, target_of
from hypersphere.nn.encoders import ENCODERS, build_encoder, check_encoder, features_of
from hypersphere.nn.heads import deep_mlp, mlp
from hypersphere.nn.norm import alike_everywhere, each_group, each_view, keep_views_apart
from hypersphere.nn.side_stream import meanwhile

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
