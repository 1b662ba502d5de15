"""Whose pods stand for promises: the workloads and uids of the bindings that hold something.

Must not outlive what is held.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from federation.model.echoes import Owner
from federation.model.reservations import Reservation
from federation.services.journal import BindingChanged, StoredReservations


class Holders:
    """By binding key, as far as known."""

    def __init__(self) -> None:
        self.owners: dict[str, Owner] = {}
        self.uids: dict[str, str] = {}

    def note(self, known: BindingChanged | StoredReservations) -> None:
        if known.uid:
            self.uids[known.key] = known.uid
        if known.owner is not None:
            self.owners[known.key] = known.owner

    def note_all(self, rows: Iterable[StoredReservations]) -> None:
        for row in rows:
            self.note(row)

    def forget(self, keys: Iterable[str]) -> None:
        """Who held something holds nothing now."""
        for key in keys:
            self.uids.pop(key, None)
            self.owners.pop(key, None)

    def clear(self) -> None:
        self.owners.clear()
        self.uids.clear()


def by_cluster(
    rows: Iterable[StoredReservations],
) -> dict[str, dict[str, list[Reservation]]]:
    """What is held, by cluster and binding."""
    held: defaultdict[str, dict[str, list[Reservation]]] = defaultdict(dict)
    for row in rows:
        for each in row.reservations:
            held[each.cluster].setdefault(each.binding, []).append(each)
    return held
