"""The shared kernel: values and arithmetic both programs agree on.

Pure: standard library and numpy only; no I/O, no clock, no randomness.
"""
