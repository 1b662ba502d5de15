"""The gRPC face: servicers, who may call what, deadlines, errors as statuses.

Must not decide anything: a servicer reads a message, calls one service and writes the answer.

- ``access``: tokens, namespace quotas and the audit over the wire
- ``agents``: agents: the stream of one agent, handed to whoever converses with it
- ``auditing``: calls as the audit names them: who calls, from where, about what, and how it was
  refused
- ``batches``: a batch of bindings: items read one by one, decided together, answered in order
- ``bindings``: bindings out of requests: of a size that is kept, and sound by themselves; large
  ones are read in a thread
- ``caller_limits``: what a caller with limits of its own has asked of this control plane: lately,
  and just now
- ``calls_ahead``: calls that gRPC is asked for ahead, several of each method, so that a busy event
  loop takes all
- ``clusters``: clusters: joining, reading, changing what people say about them
- ``decoding``: from the bytes of a request to its message: how many there may be, and which have to
  wait
- ``estimates``: estimates: how many replicas of each shape fit in each cluster, packed
- ``estimating``: estimates of large fleets, worked out in a process of their own beside the control
  plane's
- ``estimating_worker``: the program of the process that estimates: news of the fleet and questions
  on standard input, answers on the output
- ``health``: gRPC's health service, which refuses as our own services do
- ``history``: the history of decisions, over the wire
- ``interceptors``: what every call passes first: who calls, whether that is allowed, its
  deadline, its errors
- ``joining``: the one command that joins a cluster, with everything an agent must know to trust
  us
- ``large_requests``: requests of many bytes: decoded one at a time, with time for everybody else
  in between
- ``measures``: what is counted of calls: how many of each method ended with which code, and how
  long they took
- ``pages``: pages of lists: their size, and the opaque token that leads to the next one
- ``peers``: peers: questions that another control plane asks an agent of ours
- ``permissions``: one table: who may call each method, and what of its request the caller's scope
  must hold
- ``placing``: asking agents for nodes after a commit: beside the answer or behind it, and never
  lost halfway
- ``promises``: what bindings hold, over the wire: released early, or kept longer by renewing a
  lease
- ``queueing``: the queue over the wire
- ``rebalance``: plans over the wire
- ``scheduling``: scheduling: decide, read and delete bindings, read decisions
- ``scoring``: scoring: nodes for a pod, as kube-scheduler or Volcano would score them
- ``served``: what a server of the control plane serves, how its connections behave, and how many
  it has
- ``simulation``: simulation: what would be decided on clusters that come with the request
- ``simulation_worker``: the program of the processes that simulate: requests on standard input,
  answers on the output
- ``status``: errors as gRPC statuses: one table, and the details that go with a code
- ``strangers``: what callers who have not proved who they are may cost: calls at once, and
  mistakes a second
- ``visibility``: answers as their callers may see them: without names of other namespaces
- ``watching``: watches over the wire: events as messages that fit, written no faster than they
  are taken
- ``worker_pipes``: what all programs do that read frames of a control plane on standard input
"""
