"""Use cases: transactions, deadlines, and the fleet in memory.

Must not see protobuf or SQL: what is needed from below is named in ``ports``,
``journal_ports`` and ``member_ports``.

- ``access``: who may call, and what was done: tokens with roles, and the audit
- ``access_ports``: what use cases need from the store for access: tokens, and the audit
- ``agent_ports``: what use cases need of agents: those that are connected, and what they can be
  asked
- ``audited_calls``: the call that is being served, as the audit names it
- ``duties``: background work that one control plane at a time does for the whole fleet, under a
  lease
- ``estimates``: how many replicas still fit, and where
- ``failover``: moving workloads off clusters that are lost, or that people want emptied
- ``fleet``: the fleet in memory, kept up with the journal
- ``history``: the history of decisions: what was decided, when, and why
- ``journal``: the journal: what was committed about promises, reports, clusters and bindings, in
  order
- ``journal_ports``: what use cases need from the store for promises: the journal, reservations,
  keys, duties, peers
- ``listed_decisions``: decisions in lists: what is asked for, and what a list says of each
- ``member_ports``: what use cases need from the store for members: clusters, their credentials and
  their reports
- ``members``: member clusters and who speaks for them: joining, credentials, reports, presence
- ``pace``: how much may come from somebody: so much at once, and then so much a second
- ``packed_previews``: a preview's binding and decision as one small body, and back
- ``packed_traces``: what a decision was made on and why, as one small body, and back
- ``plans``: plans of moves: made, shown, approved, carried out step by step
- ``ports``: what the use cases need from below: storage in transactions, and the time
- ``scheduling``: from a request to a committed decision, and what ends promises afterwards
- ``secrets``: tokens of the form ``id.secret``: made here, shown once, kept as a hash
- ``standing_process``: a process that is told of everything that happens and asked about it: bytes
  in, bytes out
- ``telling``: telling observers of what is done already: their faults change nothing of it
- ``threads``: threads by kind of work: so many of each, and so much that may wait for one
- ``troubles``: what keeps happening to work that is done again and again: told when it begins,
  changes, ends
- ``values``: what the use cases take and answer, beside the model's own values
- ``waiting``: bindings that wait for room: the queue as callers see it, and the duty of trying
  who waits
- ``waiting_ports``: what use cases need from the store for bindings that wait for room
- ``watching``: watches of what is committed: resumable, coalesced, bounded
- ``workers``: processes that answer questions for callers, and end with them: bytes in, bytes out
"""
