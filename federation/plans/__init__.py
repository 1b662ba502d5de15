"""Plans of moves, their life, and how good they could be at best.

Plain functions of values and of the time, as it is given; ``services.plans`` makes plans and acts
on them.

- ``bound``: how much plans could do at best, by linear programmes
- ``plan``: a plan, its steps, and what becomes of them
- ``words``: what a plan comes to, in words for people: on a terminal and on the page alike
"""
