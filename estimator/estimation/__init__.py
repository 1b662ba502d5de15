"""Exact answers from a snapshot: which nodes suit, how many replicas fit, what a report says.

Pure: stdlib and numpy only; no I/O, no clock, no randomness.
"""
