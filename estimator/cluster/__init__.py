"""The member cluster as it is now, kept current event by event.

- ``assumed``: pods that an extender let on nodes and that are not seen there yet
- ``assumptions``: pods that count on nodes before the API server shows them there, and how long
  each one counts
- ``cache``: the cluster as it is now, kept current event by event; hands out snapshots
- ``claims``: room that was promised to a binding on nodes where its pods are not yet
  bound
- ``echoes``: how many pods stand for each promise, counted pod event by pod event
- ``label_use``: which node labels are asked for, and how much: what the pools of a report are
  told apart by
- ``loads``: what the pods on every node sum to, in columns: a pod costs a few numbers written in
  place
"""

from __future__ import annotations
