"""Bindings that wait for room: the queue as callers see it, and the duty of trying them.

- ``keeper``: the duty of the queue: one control plane tries bindings as soon as they may have room
- ``news``: changes since the last round: bindings, clusters, and refused wants
- ``steering``: the queue for callers
- ``timeouts``: gangs that wait for too long, and preempted bindings that do not leave
- ``wants``: waiting bindings with equal requests, the room that the fleet has for them, and the
  order of those of equal priority
"""

from __future__ import annotations
