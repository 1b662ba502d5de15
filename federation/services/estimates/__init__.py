"""How many replicas still fit, and where.

- ``availability``: how many replicas of a shape still fit, and where: from memory, and from
  agents when asked for
- ``exact``: asks many agents one question at once; each answers for its own cluster or costs it
  one level
- ``fleet_news``: what estimates are made of, cluster by cluster, and what of it is news to another
  process
- ``told_fleet``: a fleet as another process knows it by news: what estimates are made of, and
  nothing else
"""

from __future__ import annotations
