"""The replica-division scheduler: arrays in, a decision out.

- ``cycle``: one scheduling cycle: filter, score, select, divide, with everything recorded
- ``decide``: one decision: a cycle on what a capacity model offers, and its reservation; bindings
  that are decided in sequence, and placed together or not at all
- ``decision``: the answer of a scheduling cycle
- ``decision_inputs``: the inputs of one scheduling cycle, as decisions store them for replays
- ``demand``: the demand of a binding: replicas, a component set, or an object without pods
- ``division``: division of replicas among the selected clusters
- ``earmarks``: capacity that is kept for bindings that wait, and what is left beside it
- ``fleet``: the clusters of a fleet as immutable arrays
- ``plugins``: filters, scores, permits, and the profiles that name them
- ``preemption``: victims: the least loss that lets bindings of higher priority fit
- ``promisable``: how many more replicas can be promised in each cluster
- ``replay``: stored decisions, decided again on their recorded inputs and capacity
- ``resolved_placement``: a placement applied to a fleet, shared by all bindings that have it
- ``scarcity``: the reason why a binding could not be scheduled, and the resource that is scarce
- ``selection``: selection of the clusters that a workload is spread over
- ``stages``: the stages of a cycle, each with its record
- ``state``: the input of one cycle, which plugins read
- ``trace``: the record of one decision, in columns, and its plain form
- ``triggers``: the triggers of a decision, and the clusters that a binding has to leave
- ``validation``: rules that a well-formed binding may break
- ``waiting``: the order of bindings that wait, their gangs, and their earmarks
"""
