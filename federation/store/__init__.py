"""PostgreSQL: tables, statements, and the embedded server.

Must not see protobuf: what goes in and out are values of the model.
"""
