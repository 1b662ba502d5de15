"""Stored forms of decisions, and replays made of them without a database.

Must not talk to a database or a control plane.

- ``binding_rows``: row structs of bindings, and of their surroundings in a decision
- ``bodies``: documents that are stored as a whole, with a version and named fields
- ``cluster_rows``: row structs of member clusters: the spec in the table, and whole clusters
  elsewhere
- ``dask_shards``: work in pieces on the workers of a Dask cluster
- ``packed_inputs``: inputs of decisions, for replays: a small part of each, and shared bodies
- ``recorded``: a decision as it was recorded, and the same made again
- ``replays``: all decisions of a trace file made again, and the result of each
- ``report_rows``: row structs of reports, and of promises beside them
- ``rows``: row structs: the declared form of each value that the database stores inside a document
  or body
- ``shards``: work in pieces on several processes
- ``trace_files``: recorded decisions in one file, with everything that makes them again
- ``trace_rows``: row structs of decisions and traces
- ``workload_rows``: row structs of workloads: requirements, components, tolerations, and shares of
  clusters
"""
