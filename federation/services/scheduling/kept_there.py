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
from federation.services.fleet.snapshot import FleetSnapshot


def kept_there(
    binding: Binding, snapshot: FleetSnapshot, changed: Mapping[int, LedgerInWork]
) -> dict[int, int]:
    """By position the replicas that are not seen there yet, by the ledgers of a snapshot and by
    those that were ``changed`` since.
    """
    first, ran = FirstStakes(binding.key, ""), Counter[int]()
    for target in binding.clusters:
        position = snapshot.positions.get(target.name)
        if position is not None:
            ran[position] += target.replicas
    kept = {}
    for position, replicas in ran.items():
        ledger = changed.get(position) or LedgerInWork(snapshot.ledgers[position])
        before, share = ledger.stake_of(binding.key), Share(binding.requirements, replicas)
        if before is not None and before.reservations:
            outstanding = ledger.stake(first, before, (share,)).outstanding
            kept[position] = sum(each.to_pack for each in outstanding)
    return kept
