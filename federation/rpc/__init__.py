"""The gRPC face: the gate that each call passes, deadlines, errors as statuses.

Must not know what an operation does.

- ``auditing``: calls as the audit names them: who calls, from where, about what, and how it was
  refused
- ``bindings``: bindings out of requests: of a size that is kept, and sound by themselves; large
  ones are read in a thread
- ``calls_ahead``: calls that gRPC is asked for ahead, several of each method, so that a busy event
  loop takes all
- ``decoding``: from the bytes of a request to its message: how many there may be, and which have to
  wait
- ``estimating``: estimates of large fleets, worked out in a process of their own beside the control
  plane's
- ``estimating_worker``: the program of the process that estimates: news of the fleet and questions
  on standard input, answers on the output
- ``health``: gRPC's health service, which refuses as our own services do
- ``interceptors``: what every call passes first: who calls, whether that is allowed, its
  deadline, its errors
- ``joining``: the one command that joins a cluster, with everything an agent must know to trust
  us
- ``large_requests``: requests of many bytes: decoded one at a time, with time for everybody else
  in between
- ``limits``: one table of what callers may have at once, and who has how much of it
- ``measures``: what is counted of calls: how many of each method ended with which code, and how
  long they took
- ``pages``: pages of lists: their size, and the opaque token that leads to the next one
- ``permissions``: one table: who may call each method, and what of its request the caller's scope
  must hold
- ``placing``: asking agents for nodes after a commit: beside the answer or behind it, and never
  lost halfway
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
- ``worker_pipes``: the loop of all programs that answer frames on standard input
"""
