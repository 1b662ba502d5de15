"""The typed Python client of the control plane.

- ``api``: the asynchronous client: one method per rpc, pages followed, failures as the error tree
- ``blocking``: the client for code without an event loop: the same methods, run on one private
  loop thread
- ``estimates``: answers about estimates, unpacked
- ``failures``: turns a failed call's status into the error tree, details included
- ``joining``: the calls about clusters that join, as ``Client.joining``
- ``paging``: lists that come in pages, read to their end
- ``plans``: the calls about plans, as ``Client.plans``
- ``watching``: watches that go on: resumed when the connection breaks, begun anew when too much
  was missed
"""

from __future__ import annotations

from federation.client.api import Client, Target, channel_to
from federation.client.blocking import BlockingClient
from federation.client.estimates import EstimateTable
from federation.client.watching import WatchMessage

__all__ = ["BlockingClient", "Client", "EstimateTable", "Target", "WatchMessage", "channel_to"]
