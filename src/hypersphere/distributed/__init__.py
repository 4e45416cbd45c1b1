"""Several processes that train one network: collectives, and the rendezvous of the processes of a launcher.

`gather` is for losses that look at the whole batch, in any training loop.

May import: errors, util.
"""

from hypersphere.distributed.collectives import gather

__all__ = ["gather"]
