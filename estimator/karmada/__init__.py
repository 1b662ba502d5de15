"""Karmada's estimator protocol, answered from this agent's picture.

- ``messages``: Karmada's questions, from messages to the values they are answered with
- ``server``: Karmada's accurate estimator, served from this agent's picture of its cluster
"""

