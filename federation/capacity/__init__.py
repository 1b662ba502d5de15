"""What promises rest on: what clusters hold, what of it is left, and what may be promised. Pure.

- ``as_scheduled``: what is outstanding, packed as a stock kube-scheduler places it
- ``assignments``: what is outstanding in one cluster, and where each of it is packed: worked out
  when asked
- ``batch_packing``: promises in many clusters at once, where a binding is new: all are packed in
  the same steps
- ``careful``: how many replicas may be promised in a cluster beside what is outstanding, and why
  no more
- ``cells``: what is left of the cells of several clusters, side by side in one table, in two
  views
- ``cluster_room``: the room in one cluster: one report's cells, with all that is outstanding
  packed into them
- ``component_sets``: how many whole sets of a workload of several components can be promised in
  each cluster
- ``contention``: all replicas that will come to the clusters of a fleet, by what they are told
  apart by
- ``deductions``: what is promised and not yet in any report, deducted where nodes cannot be seen
- ``filled_nodes``: nodes of a cluster once pods on their way are there, the largest last
- ``fleet_cells``: the cells of all clusters as flat arrays, in blocks of clusters small enough
  for the cache
- ``fleet_estimates``: how many replicas fit into every cluster, by the best of the levels that
  reports feed
- ``fleet_reports``: the reports of a fleet as arrays: what every estimate of a whole fleet is
  computed from
- ``fleet_rooms``: the rooms of a fleet's clusters: dense arrays of all that is left, cheap to
  change a few of
- ``growth``: a binding's promises in a cluster, from one decision to the next: what stays, and what
  is new
- ``holdings``: what one binding holds in one cluster, and what the newest report echoes of it
- ``known_fleet``: what is known of a whole fleet: made when somebody asks, out of what was known of
  an earlier one
- ``large_pods``: room for large pods whose small neighbours are made first: careful promises
  leave it
- ``layers``: what is left in the clusters of a fleet, in tables where newer ones lie over older
  ones
- ``ledger``: the ledger: every reservation of every cluster, and what the newest reports echo of
  them
- ``own_promises``: a binding's own promises: how much room there is beside them
- ``packing``: replicas packed into cells: what is promised, and what is left for the next promise
- ``pool_estimates``: the level ``pools``: what the cells of a whole fleet prove of one shape
- ``pool_kinds``: the pools of a fleet, each kind once: which suit a claim is found out once for
  all clusters
- ``pool_verdicts``: which pools, and which cells, suit a claim: found out once for a block of
  clusters
- ``prices``: what is to be taken of the nodes of cells before they hold so many replicas less
- ``promise_sums``: what is outstanding in each cluster of a fleet, summed in columns that change
  with promises
- ``promised_bounds``: what promises that are on no node yet leave of the bounds of cells,
  wherever their pods land
- ``rehearsal``: where kube-scheduler puts pods, by its stock scores over the nodes of a cluster
- ``remembered``: what was worked out of the nodes of a report, for as long as it is the newest
- ``reserve``: promises: each an explicit packing into one report's cells, with what it is worth
- ``room_packing``: what is outstanding, packed into what is left of clusters: all of them in the
  same steps
- ``second_looks``: which careful promises may be made after all, before they are refused
- ``simulated``: what the bindings of one simulation have taken, and what is left for the next
- ``some_clusters``: the cells of some clusters of a fleet in one table, no wider than a question is
- ``strict_bounds``: what strict promises rest on: how many replicas others can at most stand in
  the way of
- ``stuck``: what promises that lost their room keep others from: the nodes that may yet become
  their room
- ``summary_estimates``: the levels every report can feed: totals of the cluster, and node counts
  by grade
- ``wants``: what replicas ask for in each of several clusters, and how many of them each node holds
- ``worth``: what a promise will be worth where there is room, and how much of a careful one is
  kept back
"""

from __future__ import annotations
