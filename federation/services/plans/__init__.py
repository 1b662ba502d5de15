"""Plans of moves: made, shown, approved, carried out step by step.

- ``control``: plans as people make, see, approve and stop them
- ``carrying_out``: the steps of approved plans, at one control plane at a time
- ``planning``: which moves a plan has, how good it is, and whether its steps are feasible still
- ``questions``: what is asked about the best possible plan
- ``running``: the plans of one control plane: built, run, and left to others at its end
"""
