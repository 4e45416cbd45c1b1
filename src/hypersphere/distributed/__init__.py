"""Several processes that train one network: what they exchange, and how they find each other.

May import `util`.
"""

from hypersphere.distributed.collectives import gather

__all__ = ["gather"]
