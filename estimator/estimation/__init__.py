"""Exact answers from a snapshot: which nodes suit, how many replicas fit, what a report says.

- ``capacity``: a report's part of a cluster: totals, nodes by grade, and whether it changed much
- ``exact``: replicas, and whole sets of components, that fit one cluster at one instant
- ``fit``: which nodes may run a pod, and how many replicas fit: the scarcest resource decides
- ``pooling``: pools and cells of a snapshot: built, and refreshed while the same partition serves
- ``quota``: what the ResourceQuotas of a namespace still allow
"""
