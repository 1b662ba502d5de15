"""Binds pending pods that name this scheduler: a queue, gangs, a lease, and the Binding API.

Must not read Kubernetes' objects itself: watchers of pods and writers are passed in.

- ``binder``: gives pending pods of this scheduler their nodes, one by one in order, and binds them
- ``gangs``: pods of one group get their nodes together, at least as many as the group asks for
- ``queue``: which pod is tried next: active, backing off, or waiting for the cluster to change
"""
