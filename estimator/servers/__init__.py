"""Servers of an agent beside its stream: health, kube-scheduler's extender, Karmada's estimator.

Must not read Kubernetes' objects itself: readers and binders of pods are passed in.

- ``extender``: the four verbs of an extender, from the bytes of a request to its answer
- ``extender_http``: the extender's HTTP server: paths, limits, TLS, and errors
- ``extender_wire``: the JSON that kube-scheduler posts to an extender, and takes from it
- ``health``: liveness, readiness and metrics over plain HTTP
- ``karmada``: Karmada's accurate estimator, served from this agent's picture of its cluster
"""

from __future__ import annotations
