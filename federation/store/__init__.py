"""PostgreSQL: tables, statements, and the embedded server.

Must not see protobuf: what goes in and out are values of the model.

- ``bindings``: statements over bindings
- ``clusters``: statements over member clusters
- ``columns``: columns of a table that travels as one body: mostly one value stands in all its
  rows
- ``credentials``: statements over join tokens and credentials
- ``decisions``: statements over decisions and the node plans that agents answer
- ``duties``: statements over background work that one replica does at a time
- ``engine``: the connection pool, its deadlines, and what the driver's errors mean
- ``histories``: statements over the database's history: which one it is, and beginning another
  one
- ``journal``: statements over the journal and the versions of clusters' ledgers
- ``journal_rows``: changes of the journal as small bodies, and back
- ``lost_peers``: how both sides of a database connection learn within seconds that the other one
  is gone
- ``migrate``: brings a database to the schema this release needs
- ``postgres``: the store on PostgreSQL: transactions, and the statements that run in them
- ``presences``: statements over which replica heard which agent, and which replicas run
- ``previews``: statements over previews of decisions
- ``report_rows``: what agents reported, from the documents that are stored
- ``reports``: statements over reports: many are stored at once, each only if it is newer
- ``requests``: statements over idempotency keys and the answers given under them
- ``reservation_rows``: what a binding holds, as one small body, and back
- ``reservations``: statements over what bindings hold
- ``rows``: rows to values and back
- ``signal``: wakes up who waits for the journal, here and in other control planes, on its own
  connection
- ``tables``: the schema as declared: tables, keys and rules
"""
