"""Watches of what is committed: resumable, coalesced, bounded.

- ``listings``: the beginning of watches: all objects of a scope, read once for many watchers
- ``resumes``: watchers that resume from a place in the journal, in one pass for all
- ``subjects``: objects to watch: bindings from the store, and clusters from memory
- ``watches``: changes since a place in the journal, sent in few messages, without a gap
"""

from __future__ import annotations
