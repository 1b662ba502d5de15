"""Verbs that need no server: they answer from files, by the code that a control plane runs.

Must not connect: nothing here imports grpc, the client or a connection.

- ``assumptions``: estimates for files of cases beside workloads that are assumed to be there, in
  sets or replicas
- ``estimates``: estimates on clusters from files, and for files of cases
- ``score``: the verb ``score``: which node a scheduler's configuration prefers for a pod, from
  files alone
- ``scoring_cases``: lines of scoring cases: nodes and a pod with the strategy to score them by, or
  a configuration
- ``simulating``: answers of ``simulate``: decisions on clusters from files, once or in virtual time
- ``traces``: answers of ``replay --trace`` and ``what-if``: the decisions of trace files, made
  again
- ``verbs``: the verbs ``simulate`` and ``what-if``, and the options that verbs on files share
"""
