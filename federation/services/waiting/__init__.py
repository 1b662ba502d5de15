"""Bindings that wait for room: the queue as callers see it, and the duty of trying who waits.

- ``keeper``: the duty of the queue: one control plane tries what waits, as soon as it may have room
- ``limited``: the namespaces with a quota: what waits there waits for another reason than elsewhere
- ``looking``: what there is for wants that sleep
- ``nominations``: until when room is kept for those that wait for others to leave
- ``ordering``: in which order bindings of equal priority wait, where a plugin says so
- ``running``: the queue of one control plane: kept while it has the duty, and left to others
- ``steering``: what callers ask of the queue
- ``timeouts``: gangs that have waited for too long: watchers and the log are told then
- ``touched``: what may have more room since it was looked at last
- ``wants``: which waiting bindings ask for just the same, so that one is refused where the other is
"""

from __future__ import annotations
