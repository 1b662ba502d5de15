"""Fleets in memory: simulations, virtual time, what-ifs, and replays from stored reports.

Production rules decide: ``federation.scheduler`` and ``federation.failover``. Must not read a
clock, files or a database.

- ``bindings``: the bindings of a simulation, by key, by affinity group and by cluster
- ``capacity``: the capacity of a fleet in memory, less what its bindings have taken
- ``changes``: the change of a what-if, and fleets with it
- ``clusters``: clusters in virtual time: silent, stale or lost
- ``decisions``: decisions in sequence on a fleet that only exists in memory
- ``figures``: the bindings of a what-if over time, its results and figures
- ``reported_fleet``: a decision compared with stored reports
- ``steps``: events and steps of virtual time
- ``totals``: free totals of a fleet in a simulation, less what its bindings have taken
- ``waiting``: bindings that wait in virtual time, and earmarks for them
- ``what_if``: recorded decisions made again with a change
- ``what_if_runs``: runs of a what-if over a trace file, and over decisions of the last hours
- ``world``: a fleet in virtual time, with bindings that come, wait, and leave silent clusters
"""
