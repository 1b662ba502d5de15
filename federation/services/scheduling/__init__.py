"""From a request to a committed decision, and what ends promises afterwards.

The way of a decision, to be read in this order; one ``Attempt`` goes through all of it:

- ``pipeline``: queue, decide, commit, answer: one batch after the other
- ``queue``: attempts that wait for a decision: who is next, and who is decided together
- ``read``: the facts that the store has about bindings, and the bindings as they are to be decided
- ``verdicts``: what was decided, what it asks of the ledgers, and whether it is news
- ``deciding``: decisions about attempts, live and in trials, by ``federation.scheduler.decide``
- ``together``: attempts that are decided with others, and gangs, which wait for their members
- ``working_copy``: a copy of the fleet, from which the decisions of a batch take capacity
- ``known_answers``: its results that are remembered until the packed capacity changes
- ``shares``: the shares that a decision asks clusters to reserve, their certificates, and the
  promises of a placed binding that stay
- ``totals``: its capacity by totals and grade counts, for clusters without visible nodes
- ``commit``: what was decided is looked at again under locks, written, and taken over
- ``answer``: answers to what was decided, to what needs no decision, and again under a key

Beside it:

- ``measures``: what is counted of decisions: how they ended, how long they and their phases took
- ``bindings``: the use cases of bindings, one or a batch: schedule, consider, get and list them
- ``attempt``: an attempt at a decision: what is asked, and what every stage adds
- ``previews``: decisions that are shown first, and committed exactly as shown
- ``preview_copies``: working copies for previews, which share remembered answers
- ``hooks``: plugins that keep something for a decision, and hear of it once it is committed
- ``stated_moves``: moves of bindings away from clusters, or back, and the decisions that they allow
- ``preempting``: bindings lose replicas so that bindings of higher priority are placed
- ``nominating``: places for preempting bindings in capacity that pods have not left yet
- ``quotas``: namespace quotas: checked by a decision, and checked again by its commit
- ``release``: the end of promises outside of decisions: release, lease expiry, deletion, downgrade
- ``eligible_clusters``: the clusters that a binding may use, with their capacity, and its context
- ``fresh_reports``: before a refusal for want of room, fresh reports: pods that they show leave
  more room than wherever they might have gone
- ``earmarks``: capacity that decisions leave to bindings that wait
- ``agents``: requests to agents after a decision: nodes for its replicas, and missing labels
"""

from __future__ import annotations
