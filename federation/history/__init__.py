"""What is kept of decisions, and what can be made of it without a database.

Must not talk to a database or a control plane.

- ``bodies``: what the database and traces keep as a whole: versions, and fields by their names
- ``changes``: what is otherwise in a what-if, and fleets as they are with it
- ``counterfactual``: recorded decisions made again where something is otherwise
- ``dask_shards``: the same on the workers of a Dask cluster
- ``figures``: figures of a what-if: what both worlds come to, in numbers
- ``packed_inputs``: what decisions were made on, for replays: a small part of each, and bodies
  that many share
- ``recent_what_ifs``: what-ifs over decisions of the last hours: question and answer
- ``recorded``: a decision as it was recorded, and the same made again
- ``replays``: all decisions of a trace file made again, and what comes of each
- ``shards``: work in pieces that do not know each other, on several processes
- ``trace_files``: recorded decisions in one file, with everything that makes them again
- ``what_ifs``: what came of recorded decisions, and of the same with a change
- ``windows``: decisions of a span of time, played again with a change
- ``worlds``: where bindings are, what waits, and what that comes to over time
"""
