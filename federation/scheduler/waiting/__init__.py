"""Waiting for capacity: the order of bindings that wait, their gangs, and what is kept for them.

- ``gangs``: the members of a gang, its gate, and refusals to join it
- ``kept``: earmarks: capacity that is kept for bindings that wait
- ``queue``: the bindings that wait, and the next ones to try
"""

from __future__ import annotations
