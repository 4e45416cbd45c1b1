"""What a trained encoder is used for: load, export, classify, embed, find neighbours, diagnose; files of vectors.

May import: config, data, diagnostics, errors, evaluate, nn, regularize, runs, sphere, util, views.
"""
