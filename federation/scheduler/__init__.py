"""The replica-division scheduler: arrays in, a decision out.

Pure: knows the model and nothing else; no I/O, no clock, no randomness.
"""
