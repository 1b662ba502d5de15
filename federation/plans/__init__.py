"""Plans of moves, their life, and how good they could be at best.

Plain functions of values and of the time that is passed in. ``services.plans`` makes plans and
carries them out.

- ``bound``: how much plans could do at best, by linear programmes
- ``plan``: a plan, its steps, and their states
- ``words``: texts for people about the gain of a plan, on a terminal and on the page alike
"""
