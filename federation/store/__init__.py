"""PostgreSQL: tables, statements, and the embedded server.

Must not see protobuf: what goes in and out are values of the model. What belongs together has one
file: its rows and the statements over them.

- ``access_tables``: the schema as declared, of who may call: credentials, tokens, and the audit
- ``access_tokens``: the tokens of people and programs
- ``audit``: the audit: its records, and the chain in which they are sealed
- ``bindings``: bindings
- ``clusters``: member clusters
- ``columns``: columns of a table that travels as one body: mostly one value stands in all its
  rows
- ``condition``: what a database server says of itself: its settings, its connections, its clock
- ``credentials``: join tokens and credentials
- ``decision_inputs``: bodies that decisions share, by name: the fleets and profiles that they
  were made on
- ``decision_lists``: decisions in lists, the newest first
- ``decision_tables``: the schema as declared, of decisions, previews, and what they share
- ``decisions``: decisions, the node plans that agents answer, and previews
- ``document_rows``: row structs of small documents: agents' facts, node plans, nominations, and the
  breaker
- ``duties``: background work that one replica does at a time
- ``engine``: the connection pool, its deadlines, and what the driver's errors mean
- ``failover``: whether failover is frozen, who has to move, and which evictions go on
- ``gangs``: gangs: one row for all of its members that are here
- ``histories``: the database's history: which one it is, and beginning another one
- ``journal``: the journal and the versions of clusters' ledgers
- ``journal_tables``: the schema as declared, of the journal, promises and answers
- ``lists``: conditions on a list of values
- ``lost_peers``: how both sides of a database connection learn within seconds that the other one
  is gone
- ``migrate``: brings a database to the schema this release needs
- ``namespace_quotas``: namespace quotas, and what is held in their namespaces
- ``namespaces``: conditions on a column that holds namespaces
- ``plan_rows``: row structs of plans and their steps
- ``plan_tables``: the schema as declared, of plans
- ``plans``: plans and their steps: rows, and statements over them
- ``postgres``: the store on PostgreSQL: transactions, and the statements that run in them
- ``preemptions``: how many replicas were preempted lately: rows, and statements over them
- ``prepared``: statements that every batch of decisions runs, given to the driver as they are
- ``presences``: which replica heard which agent, and which replicas run
- ``readable_rows``: rows of which some may be unreadable, because a newer release wrote them
- ``replica_tables``: the schema as declared, of control planes: which run, whom they heard, and
  their duties
- ``reports``: reports: many are stored at once, each only if it is newer
- ``requests``: idempotency keys and the answers given under them
- ``reservations``: what bindings hold
- ``schema``: the whole schema as declared: ``metadata`` has the tables of all files
- ``signal``: wakes up who waits for the journal, here and in other control planes, on its own
  connection
- ``statements``: the names of all statements, and the order in which transactions take locks
- ``tables``: the schema as declared, of clusters, bindings and the queue
- ``waiting``: bindings that wait for room: their rows, and statements over them
"""
