"""Division of replicas among the selected clusters.

- ``apportion``: Webster / Sainte-Laguë apportionment: integer seats by weight
- ``strategies``: the five division strategies, by one apportionment
- ``ties``: the order among equal candidates: a keyed hash, or Karmada's order by name
- ``values``: the input and the result of a division
"""

from __future__ import annotations
