"""Member clusters and who speaks for them: joining, credentials, reports, presence.

- ``finished_jobs``: pods of Jobs that finished, kept with the reservations they stood for: they
  go, their work stays
- ``hearing``: whether we could hear agents at all: silence counts only while somebody listened
- ``identity``: who calls: bearer tokens to principals
- ``join``: member clusters: joining, reading, and changing what people say about them
- ``lifecycle``: members that are kept off, change hands, lose their credentials, or leave
- ``presences``: who hears which agent, shared by all control planes: told, read, and followed
- ``releases``: agents of other releases: one release apart is told of, two are refused, by the
  cluster's name
- ``renewal``: agents' credentials over time: which are still good, which are due, the new one
- ``replicas``: one control plane among its peers: known to them, let in by them, and knowing them
- ``reports``: what agents tell on their streams: hello, reports, heartbeats, goodbye
"""

from __future__ import annotations
