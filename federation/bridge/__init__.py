"""The bridge to Karmada: its clusters and bindings in, decisions out, as karmada-scheduler writes.

A client of the control plane's public API, and of Karmada's API server. Must not decide where
anything runs: the control plane does.

- ``affected``: which bindings a change of clusters concerns
- ``agreement``: what karmada-scheduler decided beside what fedsched decides, and why they differ
- ``app``: puts the bridge together and runs it until it is stopped
- ``asking``: asks the control plane about bindings, and reads what its answers mean for Karmada
- ``bindings``: keeps Karmada's bindings and the control plane's in step
- ``clusters``: Karmada's Cluster as the control plane's, and its status as a report
- ``counts``: what the bridge did since it began, for its log
- ``fleet``: keeps the control plane's clusters in step with Karmada's
- ``health``: whether the bridge lives and is ready, and its metrics, over plain HTTP
- ``echoes``: which promised replicas a cluster without an agent has by now
- ``jobs``: Jobs that run in several clusters, whose completions are fixed
- ``karmada``: Karmada's objects as structs with only the fields that are needed
- ``known_fields``: documents of newer Karmada versions without the fields that are not known yet
- ``member``: one cluster that has no agent: its status told to the control plane, as an agent would
- ``patches``: what is written to a binding: main patch, status patch, events
- ``pictures``: Karmada's clusters as they were when something was decided, small enough for a call
- ``renewing``: files that the bridge reads again while it runs
- ``report``: prints what the shadow found: a table for people, JSON for programs
- ``requests``: Karmada's binding as the control plane is asked to decide it
- ``settings``: what the bridge is told by its caller
- ``shadow``: decides what karmada-scheduler decides, compares, and writes nothing
- ``steps``: what is to be done about one binding, from what both sides say of it
- ``triggers``: whether Karmada's scheduler would decide a binding again
- ``watching``: Karmada's objects as they come and go, told to the loop
- ``writing``: what is written to Karmada's API server
"""
