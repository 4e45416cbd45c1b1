"""What a trained encoder is used for: load, export, classify, embed, find neighbours, diagnose; files of vectors.

May import `runs` and everything below it.
"""
