"""Capacity of member clusters: reservations, free cells, and what may be promised. Pure.

Ledgers and promises:

- ``holdings``: reservations of one binding in one cluster, and the newest report's echoes of them
- ``ledger``: the ledger of a cluster: its reservations by binding, and the echoes of them
- ``assignments``: outstanding promises of one cluster, where each is packed, and the margin beside
  them
- ``growth``: changes of a binding's promises by a decision: which stay in place, which are new
- ``promise_sums``: sums of the outstanding promises of each cluster, in columns, and by kind of
  replica

Cells and packing:

- ``fleet_cells``: reported cells of all clusters as flat arrays, in blocks
- ``some_clusters``: cells of some clusters in one table, with the resources of a question only
- ``pool_kinds``: the distinct node pools of a fleet: a claim is matched once a kind
- ``cells``: free cells of several clusters in one table, in two views
- ``layers``: layers of free cells of a fleet, of which newer ones lie over older ones
- ``packing``: packing of replicas into free cells, in closed form, and how many a node of each cell
  holds
- ``room_packing``: packing of outstanding promises into the free cells of clusters, and nodes that
  stuck ones reserve
- ``cluster_room``: free capacity of one cluster, with all outstanding promises packed in
- ``fleet_rooms``: free capacity of a fleet's clusters

Promises:

- ``careful``: the limit of promises in a cluster beside all outstanding ones, and second looks
  that grant promises, or refuse them, after all
- ``own_promises``: room for more of the same beside the promises that a binding holds
- ``component_sets``: number of whole sets of components that can be promised
- ``batch_packing``: promises of new replicas in many clusters at once
- ``reserve``: reservation: packing of a binding's shares, or a refusal
- ``strict_bounds``: a bound on the replicas that others can prevent, for every placer and order

kube-scheduler:

- ``rehearsal``: where kube-scheduler's stock scores put pods on the nodes of a cluster
- ``filled_nodes``: nodes with all pods on their way: small ones first, the largest last; caches of
  results about the nodes of a report
- ``largest_nodes``: the largest nodes of each cluster, and which pods are large there
- ``large_pods``: room that careful promises leave for large pods on their way

Estimates:

- ``fleet_reports``: the newest reports of a fleet as arrays
- ``summary_estimates``: the levels ``summary`` and ``models``: totals, and nodes by grade
- ``deductions``: deductions of promises that no report shows yet, for these two levels
- ``pool_estimates``: bounds of one shape in the cells of a fleet, and estimates by the best level
  that a report allows
- ``promised_bounds``: bounds of that level beside promises whose pods have no node yet
- ``simulated``: free totals in a simulation, less what its bindings have taken

The letters behind the last underscore of an array's name are its axes; ``free_rc`` is resources by
clusters. An array that uses another letter says so in its docstring.

- c: cluster, by position in the fleet, or in a block or table of some clusters
- k: cell; u: cell whose nodes differ
- r: resource; s: resource of SCORED in arrays of nodes, else segment (a view of a cluster)
- v: view (best fit, spread); x: row of a table of free cells
- p: pool or kind of pools, also cluster with promises; h: node claim
- g: kind of replica, grade of a model, or group of promises; q: request, or rate
- l: run of a rehearsal; i, j, n, d: selected entries of another axis
"""

from __future__ import annotations
