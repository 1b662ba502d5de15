"""The methods of the API as one table of operations, for gRPC and for the page.

Must not know how a request came, nor decide anything: an operation reads a request, calls one use
case and writes the answer.

- ``table``: an operation, a call, and the table that the other modules fill
- ``services``: the use cases that operations call
- ``access``, ``clusters``, ``failover``, ``plans``: operations of those services
- ``scheduling``, ``queue``, ``decisions``: operations of the service Scheduling
- ``estimates``, ``scoring``: numbers about clusters and nodes
- ``streams``: methods that stream, written out, and the question to an agent
- ``serving``: the table on a gRPC server
"""
