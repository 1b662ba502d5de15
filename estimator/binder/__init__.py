"""Binds pending pods that name this scheduler: a queue, gangs, a lease, and the Binding API.

Must not read Kubernetes' objects itself: what watches pods and what writes is passed in.
"""
