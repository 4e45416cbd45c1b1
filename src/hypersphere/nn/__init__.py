"""Networks: encoders by name, heads, normalization, the EMA target, and starting weights from files.

`each_view` runs a network on several views, with batch statistics of each view; all methods use it.

May import: distributed, errors, kernels, util.
"""

from hypersphere.nn.ema import ema_update, make_target
from hypersphere.nn.encoders import ENCODERS, build_encoder, check_encoder, features_of
from hypersphere.nn.heads import deep_mlp, mlp
from hypersphere.nn.norm import each_group, each_view, separate_view_statistics, skip_synchronization
from hypersphere.nn.side_stream import on_side_stream
from hypersphere.nn.transformers import is_transformer

__all__ = [
    "ENCODERS",
    "build_encoder",
    "check_encoder",
    "deep_mlp",
    "each_group",
    "each_view",
    "ema_update",
    "features_of",
    "is_transformer",
    "make_target",
    "mlp",
    "on_side_stream",
    "separate_view_statistics",
    "skip_synchronization",
]
