"""A config becomes a run: build its pieces, pretrain, the run folder, the machine, the results.

May import everything below it: data, views, nn, methods, train, evaluate, diagnostics.
"""
