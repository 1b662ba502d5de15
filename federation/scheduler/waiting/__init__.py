"""Waiting for room: who waits, in which order they are tried, and what wakes them.

- ``queue``: who waits, and who is tried next
"""

from __future__ import annotations
