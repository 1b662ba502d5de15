"""The member cluster as it is now, kept current event by event.

- ``cache``: nodes and pods, and the sums of pods by node in columns; hands out snapshots
- ``echoes``: how many pods stand for a promise, counted pod event by pod event
- ``holds``: capacity that is taken before its pods are on nodes: claims, and assumed pods
- ``label_use``: which node labels requests name, and how much: pools of a report differ by them
"""

from __future__ import annotations
