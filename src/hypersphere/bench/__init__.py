"""How fast: what an update, a probe, a view and an energy take on this machine, beside what they could take."""

from hypersphere.bench.parts import PARTS, bench

__all__ = ["PARTS", "bench"]
