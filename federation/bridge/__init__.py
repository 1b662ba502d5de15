"""The bridge to Karmada: its clusters and bindings in, decisions out, as karmada-scheduler writes.

A client of the control plane's public API, and of Karmada's API server. Must not decide where
anything runs: the control plane does.

- ``agreement``: decisions of karmada-scheduler beside ours: whether they agree, and why not
- ``app``: puts the bridge together by its settings, and runs it until it is stopped
- ``bindings``: keeps Karmada's bindings and the control plane's in step
- ``clusters``: keeps clusters in step, and reports those without an agent
- ``decisions``: Karmada's bindings as requests to the control plane, answers as verdicts
- ``metrics``: the counts, health and metrics of the bridge, over plain HTTP
- ``objects``: Karmada's objects as structs and values, and the watches of them
- ``reported_cluster``: one cluster without an agent, reported from its status in Karmada
- ``shadow``: decides what karmada-scheduler decides, compares, and writes nothing
- ``steps``: the next step about one binding, by Karmada's rules
- ``writes``: patches of bindings, and events
"""
