"""The replica-division scheduler: arrays in, a decision out.

- ``affinity``: which clusters of a fleet a ClusterAffinity matches
- ``batch``: bindings that are decided one after the other, and placed together or not at all
- ``cycle``: one scheduling cycle: filter, score, select, divide, with everything recorded
- ``decide``: one decision: a draft on a fleet, divided by what a capacity model offers, and
  reserved in it
- ``decision``: the answer of a scheduling cycle
- ``decision_inputs``: the inputs of one scheduling cycle, as decisions keep them for replays
- ``demand``: what a binding asks clusters to hold: replicas, whole component sets, or an object
  without pods
- ``division``: how replicas are divided among the selected clusters
- ``earmarks``: capacity beside the claims of bindings that wait
- ``fleet``: the immutable array snapshot of the clusters that one decision, or thousands, work on
- ``plugins``: the plugins of a cycle: filters, scores, permits, and the profiles that name them
- ``preemption``: which replicas make room for a binding of higher priority
- ``promisable``: how many more replicas can be promised in each cluster, as far as rooms can tell
- ``reasons``: why a binding could not be scheduled, with numbers
- ``recorded_capacity``: capacity as it was recorded with a decision
- ``replay``: a stored decision, made again from what it was made on
- ``resolved_placement``: what a placement comes to on a fleet, worked out once for all bindings
  that ask the same
- ``scarcity``: what is scarce where a binding finds too little room, in one clause
- ``selection``: which clusters a workload is spread over
- ``serialization``: frozen values of arrays, enums and tuples to plain builtins and back, by
  their type hints
- ``simulated_capacity``: the capacity of a fleet that only exists in memory, less what its bindings
  have taken
- ``simulated_fleet``: a fleet that only exists in memory, with savepoints
- ``simulated_rooms``: the rooms of a simulation's clusters that come with pools, and what is
  promised in them
- ``simulation``: decides bindings one after the other on a fleet that only exists in memory
- ``stages``: the stages of a cycle, each from the cycle's state to the record of what it found
- ``state``: what one cycle knows: the binding, the fleet, availability, and what runs where
- ``surely_first``: clusters where a replica surely fits before those where it may fit
- ``trace``: the record of one decision, in columns: what was known, refused, scored, selected and
  divided
- ``triggers``: why a binding is decided again, and which of its clusters it has to leave for that
- ``waiting``: waiting for room: who waits, in which order they are tried, and what wakes them
- ``validation``: what makes a binding meaningless, although it is well formed
"""
