"""How many replicas still fit, and where.

- ``availability``: how many replicas of a shape still fit, and where: from memory, and from
  agents when asked for
- ``exact``: asks many agents one question at once; each answers for its own cluster or costs it
  one level
"""

from __future__ import annotations
