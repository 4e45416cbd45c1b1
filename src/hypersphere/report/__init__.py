"""What people look at: HTML pages, plots, Markdown and terminal tables about results, runs and diagnoses.

May import: bench, config, data, diagnostics, errors, inference, paper, probes, runs, sphere, train, util.
"""
