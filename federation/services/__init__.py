"""Use cases: transactions, deadlines, and the fleet in memory.

Must not see protobuf or SQL: the modules whose names end with ``ports`` say what use cases need
from below.

- ``access``: callers and their rights: tokens with roles, quotas, and the audit
- ``agent_values``: values that agents say of themselves, and that they are answered
- ``audited_calls``: the call that is being served, as the audit names it
- ``binding_ports``: the store of bindings, and of their waits
- ``decision_ports``: the store of decisions and previews, and lists of decisions
- ``duties``: background work that one control plane at a time does for the whole fleet, under a
  lease
- ``estimates``: how many replicas still fit, and where
- ``failover``: moving workloads off clusters that are lost, or that people want emptied
- ``fleet``: the fleet in memory, kept up with the journal
- ``history``: the history of decisions, and exports of it
- ``journal``: the committed changes of promises, reports, clusters and bindings, in order
- ``journal_ports``: the store of promises: the journal, reservations, keys, duties, peers
- ``member_ports``: the store of members and their reports, and the agents that can be asked
- ``members``: member clusters and their agents: joining, credentials, reports, presence
- ``pace``: limits of one caller: a pace, and a fair share of what many use
- ``packed_traces``: traces and previews of decisions as small bodies, and back
- ``plans``: plans of moves: drafted, shown, approved, carried out step by step
- ``ports``: the store as a whole, its transactions, and the time
- ``scheduling``: from a request to a committed decision, and what ends promises afterwards
- ``secrets``: tokens of the form ``id.secret``: shown once, stored as a hash
- ``threads``: thread pools by kind of work, and bounds of their queues
- ``troubles``: repeated failures of work: logged when they begin, change, and end
- ``values``: parameters and results of the use cases, in addition to the model's values
- ``waiting``: bindings that wait for room: the queue as callers see it, and the duty of trying them
- ``watching``: watches of committed changes: resumable, coalesced, bounded
- ``workers``: processes that answer questions for callers, and end with them, or get all changes:
  bytes in, bytes out
"""
