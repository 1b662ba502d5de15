"""Which nodes a share gets, and what it takes for its pods to be bound there.

- ``incoming``: a pod that still has to get a node, as the extender and the binder judge it
- ``judgement``: one pod against the cluster as it is: which nodes it may have, how good they are,
  and why not
- ``moving``: claims that move for one another, so that more find a node
- ``place``: chooses nodes for one cluster's shares of a decision, and claims their room
- ``plans``: the claims that planned promises hang on: made, kept, given up, and counted as if
  bound
"""

from __future__ import annotations
