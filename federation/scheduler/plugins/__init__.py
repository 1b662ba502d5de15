"""The plugins of a cycle: filters, scores, permits, and the profiles that name them.

- ``filters``: filter plugins: clusters that cannot take the binding, and why
- ``permits``: permit plugins: objections to a finished division as a whole
- ``profile``: the plugins that a scheduling cycle runs, their order and weights
- ``registry``: the type of a plugin, and the table of those that come with the scheduler
- ``run``: calls of plugins, with checks of their answers
- ``scores``: score plugins: how well a cluster suits the binding, 0 to 100
"""

from __future__ import annotations
