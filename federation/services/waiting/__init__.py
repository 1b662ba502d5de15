"""Bindings that wait for room: the queue as callers see it, and the duty of trying who waits.

- ``keeper``: the duty of the queue: one control plane tries what waits, as soon as it may have room
- ``news``: changes since the last round: of bindings, of clusters, wants that were refused
- ``ordering``: in which order bindings of equal priority wait, where a plugin says so
- ``running``: the queue of one control plane: kept while it has the duty, and left to others
- ``steering``: what callers ask of the queue
- ``timeouts``: a gang waits for too long, or preempted bindings do not leave
- ``wants``: which waiting bindings ask for the same, and what the fleet has for each want
"""

from __future__ import annotations
