"""Floors: how readers of a sequence know which of its numbers may still be committed.

Must not wait for anybody. A writer locks the last number that was given out, its floor, before it
takes numbers, and holds the lock until its transaction ends. A reader reads the last number, then
the least floor. All numbers up to the lower one are settled: committed, which a later snapshot
shows, or lost for good. A transaction that takes no numbers has no floor, and delays no reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# A lock's number has the floor in its lower 48 bits, enough for centuries. The bits above tell
# sequences apart, and floors from other locks.
FLOOR_BITS: Final = 48
_HIGH_BITS: Final = FLOOR_BITS - 32

_LAST: Final = """
    last AS MATERIALIZED (
        SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS number FROM {sequence}
    )
"""
_TAKE: Final = """
    WITH {last}
    SELECT number FROM last, LATERAL pg_advisory_xact_lock_shared({first_key} | number)
"""
_FLOORS: Final = """
    SELECT (classid::bigint & {high_mask}) << 32 | objid::bigint AS floor, pid FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND mode = 'ShareLock' AND granted
        AND classid::bigint >> {high_bits} = {lock_class}
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
# The condition has the server read the last number first. A floor that is locked after that has
# larger numbers above.
_BOUNDS: Final = """
    {last}
    SELECT coalesce(floor, last.number) AS settled, last.number AS newest
    FROM last, LATERAL (
        SELECT min(floor) AS floor FROM ({floors}) AS held WHERE floor < last.number
    ) AS lowest
"""
# An ordinary role sees whose the sessions of others are, and not since when they are open.
_HOLDER: Final = """
    held AS ({floors})
    SELECT coalesce(held.pid, 0), coalesce(datname, current_database()), coalesce(usename, ''),
        coalesce(application_name, ''), extract(epoch FROM clock_timestamp() - xact_start)::float8
    FROM held LEFT JOIN pg_stat_activity USING (pid)
    WHERE floor = :floor ORDER BY xact_start, pid LIMIT 1
"""


@dataclass(slots=True, kw_only=True)
class HeldFloors:
    """Floors that a transaction has locked: that of the journal, and whether that of the audit."""

    journal: int | None = None
    has_audit: bool = False


class Floors:
    """Queries over the floors of one sequence. ``lock_class`` is that of their locks.

    ``take`` locks the floor of a transaction and returns it. It belongs into a statement before the
    one that takes numbers. ``bounds`` and ``holder`` go on behind WITH: one returns the number up
    to which all is settled and the last one, the other the session that holds ``:floor``.
    """

    def __init__(self, sequence: str, lock_class: int) -> None:
        last = _LAST.format(sequence=sequence)
        floors = _FLOORS.format(
            high_bits=_HIGH_BITS, high_mask=(1 << _HIGH_BITS) - 1, lock_class=lock_class
        )
        self.take = _TAKE.format(last=last, first_key=lock_class << FLOOR_BITS)
        self.bounds = _BOUNDS.format(last=last, floors=floors)
        self.holder = _HOLDER.format(floors=floors)


JOURNAL_CLASS: Final = 0x6A6E
JOURNAL: Final = Floors("journal_id_seq", JOURNAL_CLASS)
AUDIT: Final = Floors("audit_id_seq", JOURNAL_CLASS + 1)
