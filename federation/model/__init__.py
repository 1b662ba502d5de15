"""The shared kernel: values and arithmetic both programs agree on.

- ``arrays``: the array types that both programs reckon with
- ``cluster``: member clusters as the control plane knows them, and what their agents report
- ``component_sets``: a workload of several components as one shape: what a whole set of them asks
  for
- ``echoes``: which pods stand for which reservation: what an agent counts while it takes a
  report's snapshot
- ``errors``: the error tree
- ``estimate``: how many replicas fit: what each level answers, and how levels make one answer
- ``grade_counts``: nodes sorted into the grades of a resource model, many at once
- ``grades``: graded resource models: which grade a node's free resources fall in
- ``namespace_quotas``: namespace quotas: how much all bindings of a namespace may hold promised,
  together
- ``node_plans``: what an agent is asked to place on its nodes, and where it has placed it
- ``placement``: placement and binding: where a workload may go and how its replicas are divided
- ``pod_request``: what one pod asks of its node: containers, init containers, sidecars, overhead,
  pod-level
- ``pools``: what an agent's report says of free nodes: pools, cells, and the bounds they prove
- ``positions``: where clusters stand in arrays by position, once some have left a fleet and
  others have come
- ``printable``: texts of others, made safe to show: nothing in them acts on a terminal, a log or
  a page
- ``quantity``: Kubernetes quantity strings ("500m", "1.5Gi", "2e3"), read and written exactly
- ``readable``: amounts and spans of time as people read them
- ``reason_codes``, ``reason_texts``, ``reasons``: why something came out as it did: codes, their
  English, and values with typed parameters
- ``releases``: how far two programs of fedsched are apart, by their versions
- ``reported_pools``: pools between what is reckoned with and what is reported, both ways and
  without loss
- ``reservations``: what was promised to bindings and what agents have seen of it: values, and
  what is outstanding
- ``resources``: resource names and the unit each is counted in: cpu in millicores, all else in
  whole units
- ``role_rules``: roles of callers that others vouch for: rules over their claims, of which the
  first decides
- ``selectors``: whether one object's labels suit a workload: selectors and requirements
- ``shapes``: what pods of promises are told apart by, and what a report counts of them
- ``tolerations``: what many tolerations cover, looked up by a taint's key, effect and value
- ``waiting``: waiting for room: the states of it, and how long one waits
- ``workload``: what is being scheduled: a workload's requirements, its components and where it
  already runs
"""
