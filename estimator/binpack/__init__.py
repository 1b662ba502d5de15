"""The binpack scorer: which node of one cluster should take the next replica.

- ``arrays``: the nodes of one cluster as columns, and one replica as the scheduler counts it
- ``balanced_allocation``: nodeResourcesBalancedAllocation: prefer the node whose resources the
  replica evens out
- ``breakdown``: a node's score taken apart, for people and for the wire
- ``fit``: whether and how often a replica fits a node, as NodeResourcesFit filters
- ``fit_columns``: the part MostAllocated, LeastAllocated and RequestedToCapacityRatio share:
  which resources count
- ``fit_strategies``: the types of scoringStrategy that NodeResourcesFit scores by, one file each
- ``node_load``: nodes given one by one, as files and case lines give them, turned into columns
- ``node_scores``: one pod against named nodes: each node's scores, what it is short of, and the
  parts of it all
- ``percentages``: what LeastAllocated and MostAllocated share: a percentage per resource, averaged
- ``place``: place n replicas of one shape on nodes by score, as if one at a time, without
  stepping
- ``profile``: several plugins together, weighted and added, as a kube-scheduler profile scores
- ``requests``: one pod in the views that scoring keeps apart
- ``shape``: the broken line of RequestedToCapacityRatio: from percent used to a score
- ``strategy``: what every strategy is: an order of the nodes, and the numbers it was made of
- ``volcano``: volcano's binpack plugin: how full the requested resources get, as a float
"""
