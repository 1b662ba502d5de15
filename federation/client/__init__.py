"""The typed Python client of the control plane.

- ``api``: the asynchronous client: one method per rpc, pages followed, failures as the error tree
- ``blocking``: the client for code without an event loop: the same methods, run on one private
  loop thread
- ``channels``: connections to several control planes as one: whoever goes away, the next one is
  asked
- ``estimates``: answers about estimates, unpacked
- ``failures``: turns a failed call's status into the error tree, details included
- ``joining``: the calls about clusters that join, as ``Client.joining``
- ``paging``: lists that come in pages, read to their end
- ``plans``: the calls about plans, as ``Client.plans``
- ``targets``: where control planes are, and how to be let in
- ``watching``: watches that go on: resumed when the connection breaks, begun anew when too much
  was missed
"""

from __future__ import annotations

from federation.client.api import Client
from federation.client.blocking import BlockingClient
from federation.client.channels import channel_to
from federation.client.estimates import EstimateTable
from federation.client.targets import Target
from federation.client.watching import WatchMessage

__all__ = ["BlockingClient", "Client", "EstimateTable", "Target", "WatchMessage", "channel_to"]
