"""``federation demo``: the main job, shown from nothing with real programs on recorded clusters.

Must not do anything a user could not do with the same commands.

- ``awaiting``: waits, over the API, for what the story goes on with
- ``karmada``: the chapter about Karmada: a fake API server of it, and the bridge
- ``members``: the chapter about pods: fake API servers of members, and the propagator
- ``programs``: the demo's child processes: started in order, each with its own log, ended
  together
- ``story``: what the demo shows, step by step, by running the commands a user would
"""
