"""The paper: its tables, figures and claims as data; what the results say of them; what to run next.

May import `runs`, `sweeps` and everything below them.
"""
