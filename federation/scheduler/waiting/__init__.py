"""Waiting for room: who waits, in which order they are tried, and what wakes them.

- ``gangs``: who of a gang is here, what it waits for, and who cannot join it
- ``queue``: who waits, and who is tried next
"""

from __future__ import annotations
