"""Exact answers from a snapshot: which nodes suit, how many replicas fit, what a report says.

- ``capacity``: what a report says of a cluster: its totals, its nodes by grade, and whether it
  changed much
- ``exact``: exact answers about one cluster at one instant: its nodes, its quotas, and nothing
  guessed
- ``filter``: which nodes may run a pod at all: selector, required affinity, taints
- ``fit``: how many replicas of one shape fit: per node the scarcest resource decides
- ``pooling``: pools and cells of a snapshot: built, and refreshed while the same partition still
  serves
- ``quota``: what the ResourceQuotas of a namespace still allow
- ``sets``: how many whole sets of a workload of several components fit, node after node in their
  order
"""
