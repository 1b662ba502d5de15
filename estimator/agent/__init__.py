"""The conversation of an agent with its control plane, which the agent always dials.

Must not know Kubernetes: a ``MemberCluster`` says what the cluster has.

- ``agent``: reports in sequence, heartbeats, and places for replicas of one member cluster
- ``answers``: answers to estimate and place requests, and the queue of outgoing messages
- ``channel``: channels to control planes, and how far their clocks are off
- ``enrolment``: a join token for a credential, and the pinned certificate authority
- ``messages``: messages of the stream and the values of the agent
- ``session``: stream after stream, until the agent stops
- ``stream``: one stream, from Hello to its end
"""

from __future__ import annotations
