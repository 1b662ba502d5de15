"""``federation demo``: the main job, shown from nothing with real programs on recorded clusters.

Must not do anything a user could not do with the same commands.
"""
