"""Bindings that wait for room: the queue as callers see it.

- ``steering``: what callers ask of the queue
"""

from __future__ import annotations
