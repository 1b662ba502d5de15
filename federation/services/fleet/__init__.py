"""The fleet in memory, kept up with the journal.

- ``changed_names``: the names of clusters that changed, for the snapshot and for others that follow
  the fleet
- ``histories``: whether the database is still the one whose history this control plane knows
- ``journal_reader``: following the journal: what any control plane committed, applied to the
  fleet in memory
- ``known_estimates``: estimates of shapes that were asked for before, as long as they are still
  true
- ``known_rooms``: the rooms of clusters that changed since the last snapshot: made from what is
  known of them, and those of reports that will soon be known, packed in a thread before anybody
  asks for them
- ``ledgers``: every cluster's ledger in memory, brought forward version by version, whoever told
  of it first
- ``overcommitment``: says aloud when promises find no room any more in a cluster's newest report,
  and when they do
- ``own_entries``: what this control plane appends to the journal itself: known here before it is
  read there
- ``readiness``: tells when whether clusters can be counted on changes by itself: nobody writes
  that down
- ``registry``: the fleet in memory: one mutable owner, and the immutable snapshots everybody
  reads
- ``report_requests``: asking agents for fresh reports: once much was promised since their last
  one, and before a refusal for want of room
- ``snapshot``: the fleet at one instant, as arrays by position; made anew, or from the one before
"""

from __future__ import annotations
