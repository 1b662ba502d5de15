"""Second looks: which careful promises may be made after all, before they are refused.

Pure. Best fit, spreading and what is kept back know nothing of a cluster's scheduler. Here all that
is on its way is rehearsed where a stock kube-scheduler puts it: what still fits after every
rehearsal may be promised. Must not promise anything, nor be asked where a promise fits anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Final, TypeAlias

import numpy as np

from federation.capacity.cluster_room import Room
from federation.capacity.fleet_rooms import FleetRooms
from federation.capacity.rehearsal import Part, RehearsedNodes, Taste, placed, room_for
from federation.model.arrays import BoolArray, IntArray
from federation.model.placement import Certificate
from federation.model.pools.matching import Match
from federation.model.reservations import Outstanding
from federation.model.workload import NodeClaim, ReplicaRequirements

# Pods come in the order in which they were promised, or nearly so. This is what schedulers of
# several releases make of it, and luck among equal nodes. Where clusters are told to pack, best fit
# tells more, and nothing is promised beyond that.
TASTES: Final = (
    Taste(by_change=True),
    Taste(by_change=True, turn=1),
    Taste(by_change=False),
)
# So many are left free after each rehearsal: luck has more turns than are rehearsed.
LEFT_FREE: Final = 2
# Cells times promises on their way, beyond which a cluster is not rehearsed.
MOST_STEPS: Final = 10_000
# Of so many clusters, those with most room, a second look is taken.
MOST_LOOKED_AT: Final = 4

# What is left of the nodes after each rehearsal; None: of one in which not all found a node.
_Stages: TypeAlias = tuple[RehearsedNodes | None, ...]


def looked_again_c(
    fleet: FleetRooms,
    requirements: ReplicaRequirements,
    asked: Certificate | None,
    known_c: IntArray,
    replicas: int,
) -> IntArray:
    """How many more replicas, of so many that are wanted, can be promised in each cluster (axis c):
    as many as is known, and more where rehearsals show that.
    """
    most_c, _ = fleet.most_by_view(requirements)
    may_c = (known_c < np.minimum(most_c, replicas)) & ~fleet.overcommitted_c & ~fleet.strict_c
    may_c &= ~fleet.planned_c | (asked is Certificate.CAREFUL)
    if asked is Certificate.STRICT or not may_c.any():
        return known_c
    found_c = known_c.copy()
    order = np.argsort(-most_c, kind="stable")
    for position in order[may_c[order]][:MOST_LOOKED_AT].tolist():
        room = fleet.rooms[position]
        if room is not None:
            most = rehearsed_most(room, requirements, min(int(most_c[position]), replicas))
            found_c[position] = max(int(known_c[position]), most)
    return found_c


def rehearsed_most(room: Room, requirements: ReplicaRequirements, limit: int) -> int:
    """The most replicas, up to ``limit``, that fit after every rehearsal of what is outstanding.

    None where the cluster does not tell what its nodes have allocatable, where too much is on its
    way, or where something lost its room. None either where pods choose their nodes: of large ones
    that do, made in any order, second looks left twice as many pending in studies.
    """
    chooses = any(each.requirements.node_claim for each in room.outstanding)
    if room.held.is_overcommitted or chooses or requirements.node_claim:
        return 0
    suiting_p = _suiting_p(room, requirements.node_claim)
    most = limit
    for stage in _rehearsed(room):
        if stage is None:
            return 0
        part = Part(requirements.request, suiting_p, most)
        most = min(most, max(0, room_for(stage, part) - LEFT_FREE))
    return most


def _rehearsed(room: Room) -> _Stages:
    """After all that is outstanding: mostly that is what it was before, and a little more."""
    cells, outstanding = room.pools.cells, room.outstanding
    known, stages = room.site.rehearsed.known
    if not stages or not _begins_with(outstanding, known):
        if cells.allocatable_rk is None:
            return (None,)
        first = RehearsedNodes.of(cells, cells.allocatable_rk)
        known, stages = (), (first,) * len(TASTES)
    more = outstanding[len(known) :]
    if len(cells) * len(more) > MOST_STEPS:
        return (None,)
    for each in more:
        part = Part(
            each.requirements.request,
            _suiting_p(room, each.requirements.node_claim),
            each.to_pack,
        )
        stages = tuple(
            None if stage is None else placed(stage, part, taste)
            for stage, taste in zip(stages, TASTES, strict=True)
        )
    room.site.rehearsed.known = outstanding, stages
    return stages


def _begins_with(outstanding: Sequence[Outstanding], known: Sequence[Outstanding]) -> bool:
    """Whether the very same come first: to compare values would take longer than to go on."""
    return len(known) <= len(outstanding) and all(map(is_, known, outstanding))


def _suiting_p(room: Room, claim: NodeClaim | None) -> BoolArray:
    """Which of the cluster's pools surely suit a claim."""
    verdict_p = room.kinds.verdicts(claim)
    if verdict_p is None:
        return np.ones(len(room.site.kind_p), dtype=np.bool_)
    suiting_p: BoolArray = verdict_p[room.site.kind_p] == Match.YES
    return suiting_p
