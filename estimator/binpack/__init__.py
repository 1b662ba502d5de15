"""The binpack scorer: which node of one cluster should take the next replica.

- ``arrays``: the nodes of one cluster as columns, one replica as the scheduler counts it, and
  whether it fits
- ``balanced_allocation``: NodeResourcesBalancedAllocation: prefer the node whose resources the
  replica evens out
- ``fit_columns``: the parts that the types of scoringStrategy share: columns, and percentages
- ``fit_strategies``: the types of scoringStrategy that NodeResourcesFit scores by, one file a type
- ``node_scores``: one pod against named nodes: their scores, what they are short of, and the parts
- ``place``: places n replicas of one shape on nodes by score, as if one at a time
- ``profile``: several plugins together, weighted and added, as a kube-scheduler profile scores
- ``requests``: one pod in the views that scoring keeps apart
- ``strategy``: an order of the nodes, the numbers it was made of, and the shapes it scores by
- ``volcano``: volcano's binpack plugin: how full the requested resources get, as a float
"""
