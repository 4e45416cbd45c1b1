"""Small tools without a subject of their own: files, console, random numbers, intervals, importing a user's code.

Imports nothing of the project but `errors`.
"""
