"""Reads the scoring configuration people already have into strategies.

Must not score: a reader's result is a value of ``estimator.binpack``.
"""
