"""What is kept of decisions, and what can be made of it without a database.

Must not talk to a database or a control plane.

- ``binding_rows``: row structs of bindings: the spec in the table, and whole bindings elsewhere
- ``bodies``: what the database and traces keep as a whole: versions, and fields by their names
- ``changes``: what is otherwise in a what-if, and fleets as they are with it
- ``cluster_rows``: row structs of member clusters: the spec in the table, and whole clusters
  elsewhere
- ``counterfactual``: recorded decisions made again where something is otherwise
- ``dask_shards``: the same on the workers of a Dask cluster
- ``figures``: figures of a what-if: what both worlds come to, in numbers
- ``input_rows``: the row struct of what a decision knew of other bindings
- ``packed_inputs``: what decisions were made on, for replays: a small part of each, and bodies
  that many share
- ``recent_what_ifs``: what-ifs over decisions of the last hours: question and answer
- ``recorded``: a decision as it was recorded, and the same made again
- ``replays``: all decisions of a trace file made again, and what comes of each
- ``report_rows``: row structs of reports, and of what is promised beside them
- ``rows``: row structs: the declared form of each value that the database stores inside a document
  or body
- ``shards``: work in pieces that do not know each other, on several processes
- ``trace_files``: recorded decisions in one file, with everything that makes them again
- ``what_ifs``: what came of recorded decisions, and of the same with a change
- ``windows``: decisions of a span of time, played again with a change
- ``workload_rows``: row structs of workloads: requirements, components, tolerations, and shares of
  clusters
- ``worlds``: where bindings are, what waits, and what that comes to over time
"""
