"""What people look at: pages, plots, Markdown and terminal tables of results, runs and diagnoses.

May import everything but `cli`.
"""
