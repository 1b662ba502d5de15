"""The estimator agent of fedsched, one per member cluster.

Must stay empty of imports.

- ``agent``: the conversation with a control plane
- ``app``: builds an agent out of its settings and runs it: source, credential, stream
- ``binder``: binds pending pods that name this scheduler: a queue, gangs, a lease, and the
  Binding API
- ``binpack``: the binpack scorer: which node of one cluster should take the next replica
- ``cases``: estimates of many small clusters written out, one JSON object a line: for checking
  and replay
- ``cluster``: the member cluster as it is now, kept current event by event
- ``credential``: the agent's credential and where it survives the agent
- ``estimation``: exact answers from a snapshot: which nodes suit, how many replicas fit, what a
  report says
- ``joining``: being let in: the stored credential or a new one for the join token, and whom to
  trust
- ``karmada``: generated stubs of Karmada's estimator protocol
- ``kube``: Kubernetes' API server over one session, its JSON, and dumps of it
- ``live``: the source of an agent inside, or beside, a running cluster
- ``nodes``: one cluster's nodes and pods as values: only what capacity and placement depend on
- ``placement``: which nodes a share gets, and what it takes for its pods to be bound there
- ``reports``: what a cluster reports, as a document: printed by ``estimator report``, read by
  ``--report``
- ``scoring_config``: reads the scoring configuration people already have into strategies
- ``servers``: health, kube-scheduler's extender, and Karmada's estimator
- ``settings``: settings of a running agent, checked together
- ``sight``: whether the agent sees its cluster as it is: what every watch says of itself, put
  together
- ``snapshot``: the nodes of a cluster at one instant, as columns: what every question is answered
  from
- ``sources``: where an agent's picture comes from: the live cluster, a dump, or a script of
  reports
- ``unreadable``: what a JSON decoder raises for bytes that came from elsewhere
"""
