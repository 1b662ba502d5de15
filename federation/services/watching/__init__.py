"""Watches of what is committed: resumable, coalesced, bounded.

- ``listings``: what begins a watch: all that is there in a scope, read and written once for all
  who begin
- ``subjects``: what can be watched: bindings, as they are in the store, and clusters, as they are
  in memory
- ``watches``: watches: what has changed since a place in the journal, told in few messages,
  nothing missed
"""

from __future__ import annotations
