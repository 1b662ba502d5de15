"""The control plane of fedsched, and ``fedctl``.

Must stay empty of imports: agents pay for whatever is imported here.

- ``admin_token``: the admin token: the file of the first start, and another for whoever lost it
- ``agents``: the agents' streams: who is connected, what was asked, what was answered
- ``app``: the control plane: its parts are started, served and stopped here
- ``authenticators``: callers that others vouch for: who they are, by what somebody else has signed
- ``capacity``: what promises rest on: what clusters hold, what of it is left, and what may be
  promised
- ``certificates``: a small certificate authority and a server certificate, for trying fedsched
  out over TLS
- ``cli``: ``fedctl``, the person's tool
- ``client``: the typed Python client of the control plane
- ``codec``: the border: documents, messages of the wire, and the model's values, turned into each
  other
- ``database``: the database of one control plane: the user's own, or an embedded one; reachable
  and up to date
- ``demo``: ``federation demo``: the main job, shown from nothing with real programs on recorded
  clusters
- ``doctor``: what fedsched's guarantees are worth where it runs, and what to do about it
- ``embedded_postgres``: a PostgreSQL server of our own, for those who bring none
- ``entry``: where the installed programs begin: one that lacks its packages says which extra
  brings them
- ``model``: the shared kernel: values and arithmetic both programs agree on
- ``parts``: what a control plane is made of: built and tied together here, started and stopped by
  ``app``
- ``plugins``: scheduler plugins of others: found through the entry points of installed packages
- ``operations``: the methods of the API as one table, for gRPC and for the page
- ``rpc``: the gRPC face: the gate that each call passes, deadlines, errors as statuses
- ``runtime``:
- ``scheduler``: the replica-division scheduler: arrays in, a decision out
- ``serving``: a control plane with its database, from its start until it is to stop
- ``services``: use cases: transactions, deadlines, and the fleet in memory
- ``store``: PostgreSQL: tables, statements, and the embedded server
- ``telemetry``: metrics as Prometheus reads them
- ``v1``: generated wire code (``make proto``); never edited by hand
- ``web``: plain HTTP beside gRPC: the CA certificate, liveness and readiness, and the page
"""
