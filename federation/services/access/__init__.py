"""Access: tokens with roles, quotas of namespaces, and the audit.

- ``audit``: the audit: refusals are recorded, records are sealed in a chain, forgotten, and listed
- ``namespace_quotas``: namespace quotas: set, and listed with what is held
- ``tokens``: tokens of people and programs: made, listed, revoked
"""
