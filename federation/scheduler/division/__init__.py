"""How replicas are divided among the selected clusters.

- ``apportion``: Webster / Sainte-Laguë apportionment, exactly as if seats were given one at a
  time
- ``strategies``: how replicas are divided among selected clusters: every strategy, one
  apportionment
- ``ties``: which of two equals comes first: a keyed hash (fair to all clusters) or Karmada's name
  order
"""

from __future__ import annotations
