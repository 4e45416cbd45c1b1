"""Tools without a subject of their own: files, console output, random numbers, statistics, importing user code.

May import: errors.
"""
