"""Selection of the clusters that a workload is spread over.

- ``search``: the best choice of clusters under group counts: a dynamic programme over groups
- ``spread``: selection under spread constraints, as in Karmada where that keeps all of them
"""

from __future__ import annotations
