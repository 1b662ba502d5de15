"""Plans of moves, their life, and how good they could be at best.

Plain functions of values and of the time, as it is given; ``services.plans`` makes plans and acts
on them.

- ``bound``: how many replicas could move at best, by a linear programme
- ``plan``: a plan, its steps, and what becomes of them
"""
