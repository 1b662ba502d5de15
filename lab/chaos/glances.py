"""What the database says of bindings, lost clusters, duties and plans, all of one instant.

Must not ask a control plane.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import asyncpg

from lab.chaos.evictions import Placed, read_placed
from lab.chaos.plans import Step, read_steps
from lab.chaos.urgent import preempted

HOLDERS = """
    SELECT duty.name, holder, coalesce(endpoint, '') AS endpoint
    FROM duty LEFT JOIN replica ON replica.id = holder
    WHERE duty.name IN ('failover', 'plans', 'queue')
"""
LOST = """
    SELECT name FROM cluster WHERE spec -> 'taints' @> '[{"key": "fedsched.io/unreachable"}]'
"""


class Holder(NamedTuple):
    """Who has a duty, and where that one is dialled, "" where nobody is."""

    id: str = ""
    endpoint: str = ""


@dataclass(slots=True, kw_only=True)
class Look:
    """What the database said last: where bindings are, which clusters are lost, who has which duty,
    and how far steps of plans are.
    """

    placed: Mapping[str, Placed]
    lost: frozenset[str]
    holders: Mapping[str, Holder]
    steps: Sequence[Step]
    preempted: int

    def holder(self, duty: str) -> Holder:
        return self.holders.get(duty, Holder())

    @property
    def evictions(self) -> int:
        return sum(len(each.evicted) for each in self.placed.values())

    @property
    def leaving(self) -> int:
        return sum(each.leaving for each in self.placed.values())


async def look_at(database: asyncpg.Connection) -> Look:
    """All of one instant."""
    async with database.transaction(isolation="repeatable_read", readonly=True):
        placed = await read_placed(database)
        lost = frozenset(row["name"] for row in await database.fetch(LOST))
        duties = await database.fetch(HOLDERS)
        steps = await read_steps(database)
        lost_to_others = await preempted(database)
    holders = {each["name"]: Holder(each["holder"], each["endpoint"]) for each in duties}
    return Look(placed=placed, lost=lost, holders=holders, steps=steps, preempted=lost_to_others)


def evicted_from(look: Look, name: str) -> set[str]:
    """Who has an eviction from there."""
    return {key for key, each in look.placed.items() if name in each.evicted}
