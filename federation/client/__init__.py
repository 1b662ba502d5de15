"""The typed Python client of the control plane.

Speaks the generated messages; must not know files, terminals or the scheduler.
"""

from __future__ import annotations

from federation.client.api import Client, EstimateTable, Target
from federation.client.blocking import BlockingClient
from federation.client.watching import WatchMessage

__all__ = ["BlockingClient", "Client", "EstimateTable", "Target", "WatchMessage"]
