"""Plans of moves: made, shown, approved, carried out step by step.

- ``control``: plans as people make, see, approve and stop them
- ``carrying_out``: the steps of approved plans, at one control plane at a time
- ``balancing``: the moves that even out how full clusters are of what is scarcest
- ``consolidating``: the moves that leave as many clusters empty as can be, with headroom in those
  that stay
- ``drafting``: drafts: what a plan of each kind looks at, and what it comes to
- ``making_room``: the moves that find room for replicas that are pending, and make some for
  bindings that wait
- ``planning``: the moves of a plan whose bindings leave clusters or groups for good, and how good
  it is
- ``questions``: what is asked about the best possible plan
- ``search``: one move after the other on a working copy: what leaves, where it goes, and what that
  takes
- ``ways``: ways to move bindings that leave for good, and better ones
"""
