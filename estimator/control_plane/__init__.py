"""The wire to the control plane, always dialled from here.

- ``channel``: the channel to the control plane: TLS under one root, or plain text on a loopback
  address
- ``enrolment``: joining: a join token, once, for a credential that lasts
- ``estimating``: answers the control plane's questions about what fits now, in threads, some at a
  time
- ``messages``: what is said on the stream, between messages and the agent's values
- ``orders``: orders of the control plane: nodes are chosen for the shares, and the answers go back
  together
- ``outbox``: what waits to be sent on a stream, bounded: one report, one heartbeat, some replies
- ``reconnecting``: a control plane that asks to be dialled again, after a while that its clients
  share
- ``stream``: one stream to the control plane, from Hello to its end; and dialling again after it
- ``trust``: the control plane's certificate authority, fetched over HTTP and held to its
  fingerprint
"""

from __future__ import annotations
