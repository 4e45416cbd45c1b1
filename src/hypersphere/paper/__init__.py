"""The paper: its tables, figures and claims as data, verdicts on the claims, and which runs to make next.

May import: config, errors, methods, probes, runs, sweeps, util.
"""
