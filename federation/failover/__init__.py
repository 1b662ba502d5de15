"""Rules of failover: when silence is loss, whether anything may move, in which order, how fast.

Plain functions of values and of the time that is passed in. ``services.failover`` acts on them.

- ``breaker``: failover frozen, by people or because many clusters fell silent at once
- ``evictions``: how a graceful eviction ends: over, taken back, or not yet
- ``moves``: which bindings have to leave clusters, from when on, and in which order
- ``rate``: how much may move now: so many replicas a minute, and one binding a second
- ``silence``: for how long clusters have been silent while somebody listened
"""
