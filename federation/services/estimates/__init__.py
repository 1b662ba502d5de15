"""How many replicas still fit, and where.

- ``availability``: how many replicas of a shape still fit, and where: from memory, and from
  agents on request
- ``replica_fleet``: a copy of the fleet for estimates in another process, and its changes
"""
