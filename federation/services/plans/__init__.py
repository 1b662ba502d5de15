"""Plans of moves: drafted, shown, approved, carried out step by step.

- ``control``: plans as people create, see, approve and stop them
- ``carrying_out``: the steps of approved plans, at one control plane at a time
- ``drafting``: drafts: each kind of plan reads what it needs and searches its moves
- ``balancing``: the moves that even out how full clusters are of what is scarcest
- ``consolidating``: the moves that leave as many clusters empty as can be
- ``leaving``: the moves of bindings that leave clusters or groups for good
- ``making_room``: the moves that make room for replicas that are pending, or wait
- ``search``: a search for moves on a working copy, one after the other
- ``lp_inputs``: the inputs of the linear programmes that bound plans
"""
