"""The plugins of a cycle: filters, scores, permits, and the profiles that name them.

- ``filters``: filter plugins: which clusters cannot take the binding, and why
- ``permits``: permit plugins: whether a finished division may be, as a whole
- ``profile``: which plugins a scheduling cycle runs, in which order and with which weights
- ``registry``: what a plugin is, and the table of those that come with the scheduler
- ``run``: runs plugins, and holds each to what it may answer
- ``scores``: score plugins: how good a cluster is for the binding, 0 to 100, higher is better
"""

from __future__ import annotations
