"""What of a binding stays where it is and needs room for that.

Plain functions of one thread. Must not promise anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from federation.capacity.holdings import FirstStakes
from federation.capacity.ledger import LedgerInWork
from federation.model.placement import Binding
from federation.model.reservations import Share
from federation.model.shapes import request_shape
from federation.services.fleet.snapshot import FleetSnapshot


def kept_there(
    binding: Binding, snapshot: FleetSnapshot, changed: Mapping[int, LedgerInWork]
) -> dict[int, int]:
    """By position the replicas that are not seen there yet, by the ledgers of a snapshot and by
    those that were ``changed`` since.
    """
    first, ran = FirstStakes(binding.key, ""), Counter[int]()
    sought = (("", request_shape(binding.requirements.request)),)
    for target in binding.clusters:
        position = snapshot.positions.get(target.name)
        if position is not None:
            ran[position] += target.replicas
    kept = {}
    for position, replicas in ran.items():
        ledger = changed.get(position) or snapshot.ledgers[position]
        before = ledger.stake_of(binding.key)
        if before is None or not before.reservations:
            continue
        if before.sought == sought and before.reservations[0].replicas == replicas:
            # So it is mostly: it keeps just what it has.
            outstanding = before.outstanding
        else:
            share = Share(binding.requirements, replicas)
            working = changed.get(position) or LedgerInWork(snapshot.ledgers[position])
            outstanding = working.stake(first, before, (share,)).outstanding
        kept[position] = sum([each.to_pack for each in outstanding])
    return kept
