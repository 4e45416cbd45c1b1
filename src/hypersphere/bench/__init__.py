"""Benchmarks: how long updates, probes, views and energies take here, beside what the machine could do.

May import: config, data, distributed, errors, evaluate, kernels, methods, nn, optim, runs, sphere, train, util, views.
"""

from hypersphere.bench.parts import PARTS, bench

__all__ = ["PARTS", "bench"]
