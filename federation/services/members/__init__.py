"""Member clusters and their agents: joining, credentials, reports, presence.

- ``event_loop_lag``: times in which the event loop could not hear agents
- ``finished_jobs``: pods of Jobs that finished, stored with their reservations
- ``identity``: callers by their bearer tokens
- ``join``: member clusters: joining, reading, changing specs, credentials of agents
- ``kept_reports``: pictures of clusters, stored once a minute for replays
- ``lifecycle``: members that are cordoned, accepted, replaced, revoked, or deleted
- ``presences``: the control planes that hear agents, shared by all control planes
- ``replicas``: one control plane among its peers
- ``reports``: messages of agents: hello, reports, heartbeats, goodbye
- ``settling``: promised replicas that are on nodes, and that wait for one
"""

from __future__ import annotations
