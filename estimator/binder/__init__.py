"""Binds pending pods that name this scheduler: a queue, gangs, a lease, and the Binding API.

Must not read Kubernetes' objects itself: what watches pods and what writes is passed in.

- ``binder``: gives pending pods of this scheduler their nodes, one by one in order, and binds
  them
- ``candidate``: one candidate for a lease, for as long as it runs: claims it, renews it, gives it
  back
- ``election``: which of several binders binds: the one that holds the lease
- ``gangs``: gangs: pods of one group get their nodes together, at least as many as the group asks
  for
- ``ports``: what the binder needs of the cluster besides the picture of it
- ``queue``: which pod is tried next: active, backing off, or waiting for the cluster to change
"""
