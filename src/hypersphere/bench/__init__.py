"""Benchmarks: how long updates, probes, views and energies take here, beside what the machine could do.

May import `runs` and the packages below it.
"""

from hypersphere.bench.parts import PARTS, bench

__all__ = ["PARTS", "bench"]
