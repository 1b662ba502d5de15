"""Which nodes a share gets, and what it takes for its pods to be bound there.

- ``incoming``: a pod that still has to get a node, as the extender and the binder judge it
- ``judgement``: one pod against the cluster: which nodes it may have, how good they are, why not
- ``place``: nodes for one cluster's shares of a decision; claims that move for one another
- ``plans``: the claims of planned promises: made, kept, given up, and counted as if bound
"""

from __future__ import annotations
