"""The fleet in memory, kept up with the journal.

- ``conditions``: conditions of clusters that change without a write to the store: ready,
  over-committed
- ``current_snapshot``: the newest snapshot of the fleet, and the clusters that have changed since
- ``held_back``: detection of a long transaction that keeps the journal from being read
- ``histories``: detection of a database that went back: restored, copied, or failed over
- ``journal_memory``: facts that the journal's reader remembers about entries that it will read
- ``journal_reader``: the journal's reader: applies what any control plane committed to the fleet
- ``known_estimates``: a cache of estimates by replica shape
- ``ledgers``: ledgers of all clusters in memory, brought forward version by version
- ``registry``: the fleet in memory: one mutable owner of all clusters
- ``report_requests``: requests for fresh reports: after many decisions, and before a refusal
- ``snapshot``: an immutable snapshot of the fleet, as arrays by a cluster's position
"""

from __future__ import annotations
