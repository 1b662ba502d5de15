"""Which bindings a change of clusters concerns.

Pure. Karmada asks only these anew: a new cluster, one that gets ready or has more room changes
nothing else, and what waits for room is the control plane's to try again.
"""

from __future__ import annotations

from federation.bridge.karmada import KarmadaBinding


def goes_everywhere(binding: KarmadaBinding) -> bool:
    """Whether it goes to every cluster that matches."""
    return not binding.is_workload or binding.is_duplicated
