"""Who may call: tokens with roles.

- ``tokens``: tokens of people and programs: made, listed, revoked
"""
