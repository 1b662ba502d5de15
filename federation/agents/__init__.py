"""The agents' streams: who is connected, what was asked, what was answered.

Must not store anything: reports go to the services.

- ``conversation``: one agent's stream from its Hello to its end: what follows from each message
- ``forwarding``: questions to agents wherever they are connected: here, else at the peer that
  holds the stream
- ``interests``: tells connected agents which pods to look for: everything once, and then what
  changed
- ``messages``: what agents say and are told, between messages and values
- ``sessions``: who is connected, and questions to agents: asked by id, answered within a time or
  not at all
- ``upkeep``: looking after open streams: credentials renewed or ended, streams ended of age, a
  new pace told
"""
