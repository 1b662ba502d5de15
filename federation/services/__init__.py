"""Use cases: transactions, deadlines, and the fleet in memory.

Must not see protobuf or SQL: what is needed from below is named in ``ports``.
"""
