"""The free nodes of a cluster in an agent's report: pools, cells, and the bounds they prove.

- ``bounds``: lower and upper bounds of the replicas that fit, from cells, in integers
- ``building``: pools and cells from the nodes of a cluster
- ``cell_order``: the order in which cells are filled: by the free amounts of their nodes
- ``fit_space``: coordinates of cells, in which the loss of a merge is measured
- ``grid``: base cells: nodes whose free amounts fall between the same bounds
- ``grouping``: pools from nodes: by blocking taints and by chosen label keys
- ``matching``: whether the nodes of a pool suit a node claim: no, unknown, or yes
- ``merging``: greedy merging of cells: the pairs that lose the fewest replicas first
- ``refreshing``: cells between builds: the same partition with current amounts
- ``sets``: the whole component sets that fit into cells: first fit, set by set
- ``values``: node pools and cells as values
"""
