"""The promises of a placed binding in its clusters, and the replicas of these that stay.

A pure function. Must not promise anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from federation.capacity.holdings import NewReservations
from federation.capacity.ledger import LedgerDraft
from federation.capacity.own_promises import KeptPromise
from federation.model.placement import Binding
from federation.model.reservations import Share
from federation.model.shapes import request_shape
from federation.services.fleet.snapshot import FleetSnapshot

_NOTHING = KeptPromise((), 0)


def kept_promises(
    binding: Binding, snapshot: FleetSnapshot, changed: Mapping[int, LedgerDraft]
) -> dict[int, KeptPromise]:
    """Return the promises of a binding by position of its clusters, and how many replicas stay.

    The ledgers that were ``changed`` since the snapshot replace those of the snapshot.
    """
    first, running = NewReservations(binding.key, ""), Counter[int]()
    sought = (("", request_shape(binding.requirements.request)),)
    for target in binding.clusters:
        position = snapshot.positions.get(target.name)
        if position is not None:
            running[position] += target.replicas
    promises = {}
    for position, replicas in running.items():
        ledger = changed.get(position) or snapshot.ledgers[position]
        holding = ledger.reservations_of(binding.key)
        if holding is None or not holding.reservations:
            promises[position] = _NOTHING
            continue
        if holding.sought == sought and holding.reservations[0].replicas == replicas:
            # The usual case: nothing changes.
            staying = holding.outstanding
        else:
            share = Share(binding.requirements, replicas)
            working = changed.get(position) or LedgerDraft(snapshot.ledgers[position])
            staying = working.draft(first, holding, (share,)).outstanding
        replicas_kept = sum([promise.to_pack for promise in staying])
        promises[position] = KeptPromise(holding.outstanding, replicas_kept)
    return promises
