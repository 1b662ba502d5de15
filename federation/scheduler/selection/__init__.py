"""Which clusters a workload is spread over.

- ``search``: the best choice of clusters under group counts: a dynamic programme over groups
- ``spread``: selecting clusters under spread constraints, as Karmada does where that keeps every
  constraint
"""

from __future__ import annotations
