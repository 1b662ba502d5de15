"""The database is restored to an older point: nothing that was promised since is promised again.

Must not look into the database: members say what finds no node.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from federation.store.migrate import upgrade
from lab.callers import enrolled
from lab.chaos.members import living
from lab.drills.failover import PACE, Load, pending_in
from lab.drills.fleet import members
from lab.drills.servers import MovableAddress, Restorable, restorable
from lab.patience import until
from lab.planes import Planes, running_planes

# Two of the cores of each node hold twenty replicas: two hundred bindings of two fill the fleet.
CORES, NODES = 2, 5
BEFORE, SINCE, FROZEN = 50, 50, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WentBack:
    """What came of it: decisions that were told before the backup, between it and the restore,
    while no agent had reported since, and afterwards until nothing fitted any more.
    """

    before: int
    since: int
    frozen: int
    after: int
    pending: int


def go_back(folder: Path) -> WentBack:
    with restorable(folder) as server:
        upgrade(server.url)
        address = MovableAddress(server.sockets)
        with running_planes(folder, 2, address.url, PACE) as planes:
            result = asyncio.run(_drill(planes, server, address))
        address.close()
        return result


async def _drill(planes: Planes, server: Restorable, address: MovableAddress) -> WentBack:
    there = members(CORES, NODES)
    credentials = await enrolled(planes.endpoints[0], planes.token, there)
    load = Load(planes=planes, members=there)
    async with living(there, planes, credentials):
        await load.until_told(BEFORE)
        await asyncio.to_thread(server.back_up)
        await load.until_told(BEFORE + SINCE)
        since = len(load.acknowledged) - BEFORE
        for member in there.values():
            member.fall_silent()
        await asyncio.to_thread(server.restore)
        address.move(server.restored_sockets)
        held = len(load.acknowledged)
        await load.until_refused(FROZEN)
        frozen = len(load.acknowledged) - held
        for member in there.values():
            member.speak()
        await load.until_told(held + frozen + 1)
        await load.until_refused(FROZEN)
        after = len(load.acknowledged) - held - frozen
        pending = await until(pending_in(there), lambda count: count == 0)
    return WentBack(before=BEFORE, since=since, frozen=frozen, after=after, pending=pending)
