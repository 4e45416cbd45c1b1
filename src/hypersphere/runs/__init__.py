"""A config becomes a run: build its pieces, pretrain, the run folder, the machine, the results.

May import: config, data, diagnostics, distributed, errors, evaluate, kernels, losses, methods, nn, optim, presets,
probes, regularize, sphere, train, util, views.
"""
