"""What conditions of clusters are called that are not Kubernetes' own.

Must not know what brings them about.
"""

from __future__ import annotations

from typing import Final

OVER_COMMITTED: Final = "OverCommitted"
LOST: Final = "Lost"
FAILOVER_FROZEN: Final = "FailoverFrozen"
