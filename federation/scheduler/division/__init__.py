"""Division of replicas among the selected clusters.

- ``apportion``: Webster apportionment, and the order among equal candidates
- ``strategies``: the five division strategies, by one apportionment
- ``values``: the input and the result of a division
"""

from __future__ import annotations
