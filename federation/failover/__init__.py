"""When silence is loss, whether anything may move, what moves first, and how fast.

Plain functions of values and of the time, as it is given; ``services.failover`` acts on them.

- ``breaker``: failover frozen, by people or because many fell silent at once, and what those have
  in common
- ``evictions``: what becomes of a graceful eviction: still going on, over, or taken back
- ``moves``: which bindings have to leave clusters, from when on, and in which order
- ``rate``: how much may move now: so many replicas a minute, and one binding a second
- ``silence``: for how long clusters have been silent while somebody listened
- ``virtual_steps``: what happens in virtual time: what a fleet in memory is told, and tells
- ``virtual_time``: a fleet in memory: who comes, who has to leave clusters that fall silent
- ``virtual_waiting``: who waits in virtual time: the queue, on bindings in memory
"""
