"""What people look at: HTML pages, plots, Markdown and terminal tables about results, runs and diagnoses.

May import everything except `cli`.
"""
