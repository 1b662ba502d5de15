"""Promises that a binding holds by the ledgers, and those that stay and need room there.

Plain functions of one thread. Must not promise anything.
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
    """Return what the binding holds where it is, by position, and how much of it stays.

    By the ledgers of a snapshot and by those that were ``changed`` since.
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
            # So it is mostly: it keeps just what it has.
            staying = holding.outstanding
        else:
            share = Share(binding.requirements, replicas)
            working = changed.get(position) or LedgerDraft(snapshot.ledgers[position])
            staying = working.draft(first, holding, (share,)).outstanding
        replicas_kept = sum([promise.to_pack for promise in staying])
        promises[position] = KeptPromise(holding.outstanding, replicas_kept)
    return promises
