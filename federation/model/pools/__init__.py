"""What an agent's report says of free nodes: pools, cells, and the bounds they prove.

- ``bounds``: what cells prove of how many replicas fit: a lower bound and an upper one, in
  integers
- ``building``: from the nodes of a cluster to its pools and cells: built anew, or refreshed in
  between
- ``cell_order``: the order in which cells are filled: by how much is free on their nodes
- ``fit_space``: what cells hold of a catalogue of shapes: the space in which merging them is
  measured
- ``grid``: base cells: nodes whose free amounts fall between the same bounds, resource by
  resource
- ``grouping``: nodes into pools: by the taints that keep pods away and by the label keys worth
  telling apart
- ``matching``: whether the nodes of a pool suit a node claim: no, unknown, or yes
- ``merging``: greedy merging of cells: the pairs that lose the fewest replicas first, within
  their pool
- ``refreshing``: cells between builds: the same partition with today's amounts
- ``sets``: how many whole sets of a workload of several components fit into cells: first fit, set
  by set
- ``values``: node pools and cells as values: what an agent's report says of the nodes of one
  cluster
"""
