"""From a request to a committed decision, and what ends promises afterwards.

- ``batches``: several bindings in one call: decided by priority, each committed or refused by
  itself
- ``bindings``: bindings and the decisions about them, as callers ask for them
- ``commit``: decisions in batches: read together, decided one after the other, committed in one
  transaction
- ``decide``: one decision from what is known: the binding as it will be decided, and the cycle
  over it
- ``drafts``: from a request to a decision with its promises: one binding after the other on a
  working copy
- ``idempotency``: answers that are given again: what is kept of an answer under an idempotency
  key
- ``label_discovery``: teaching agents what requests tell nodes apart by: pools cannot carry a
  label nobody asked for
- ``node_plans``: what agents answer about nodes, written together: many decisions a second have
  plans
- ``previews``: previews: a decision shown first, and committed exactly as it was shown
- ``queue``: who waits for a decision, and who is decided together
- ``recheck``: what decisions were made on, looked at again under locks: bindings, and those they
  go with
- ``release``: what ends or weakens promises outside of decisions: release, leases, deletion,
  downgrades
- ``working_copy``: a batch's working copy: what one decision after the other takes of the fleet's
  rooms
- ``write``: writing decisions with their reservations: locks, what moved meanwhile, rows, the
  journal
"""

from __future__ import annotations
