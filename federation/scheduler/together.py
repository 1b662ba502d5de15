"""Promises in many clusters at once, where a binding is new: all are packed in the same steps.

Pure. Must not look at clusters that are over-committed, hold strict promises, or cannot tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from federation.model.pools.matching import Verdict
from federation.model.pools.packing import Packing, packed_in_place
from federation.model.pools.residues import VIEWS, View
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import ReplicaRequirements
from federation.scheduler.arrays import LevelArray
from federation.scheduler.fleet_rooms import FleetRooms
from federation.scheduler.held import Holding

_SIMPLE = frozenset({PromiseCertificate.CAREFUL, PromiseCertificate.PLANNED})


class Together(NamedTuple):
    """The fleet with what is wanted, how it is packed, and where there is too little room."""

    fleet: FleetRooms
    holdings: Mapping[int, tuple[Holding, ...]]
    reasons: Mapping[int, str]


@dataclass(slots=True, kw_only=True, eq=False)
class _Round:
    """Clusters that want the same, by their place among those that are packed."""

    requirements: ReplicaRequirements
    wanted: dict[int, Outstanding] = field(default_factory=dict)


def simple_asks(
    fleet: FleetRooms, binding: str, asks: Mapping[int, tuple[Outstanding, ...]]
) -> dict[int, tuple[Outstanding, ...]]:
    """What a binding wants of those clusters where nothing but the cells decides about it."""
    # Clusters of one decision mostly share their requirements.
    verdicts: dict[int, LevelArray | None] = {}
    simple = {}
    for position, wanted in asks.items():
        site, held = fleet.sites[position], fleet.held[position]
        if not wanted or site is None or held is None or held.is_special or held.has(binding):
            continue
        for each in wanted:
            if each.certificate not in _SIMPLE:
                break
            key = id(each.requirements)
            if key not in verdicts:
                verdicts[key] = fleet.kinds.verdicts(each.requirements.node_claim)
            verdict_p = verdicts[key]
            if verdict_p is not None and Verdict.UNKNOWN in verdict_p[site.kind_p]:
                break
        else:
            simple[position] = wanted
    return simple


def promised_together(fleet: FleetRooms, asks: Mapping[int, tuple[Outstanding, ...]]) -> Together:
    """Pack all that is wanted, component after component; every cluster's ask is a simple one."""
    if not asks:
        return Together(fleet=fleet, holdings={}, reasons={})
    positions, residues = fleet.layers.gathered(list(asks))
    holdings: dict[int, tuple[Holding, ...]] = dict.fromkeys(asks, ())
    reasons: dict[int, str] = {}
    for each in _rounds([asks.get(position, ()) for position in positions]):
        replicas_c = np.zeros(len(positions), dtype=np.int64)
        replicas_c[list(each.wanted)] = [wanted.to_pack for wanted in each.wanted.values()]
        verdict_p = fleet.kinds.verdicts(each.requirements.node_claim)
        suiting_p = None if verdict_p is None else verdict_p == Verdict.YES
        packing = packed_in_place(residues, each.requirements.request, replicas_c, suiting_p)
        residues, takes = packing.left, packing.takes
        if (packing.placed_s < replicas_c.repeat(VIEWS)).any():
            for place, text in _shortages(packing, each).items():
                reasons.setdefault(positions[place], text)
        for place, wanted in each.wanted.items():
            position = positions[place]
            holdings[position] += (Holding(wanted, takes, place, fleet.resources(position)),)
    if not reasons:
        fleet = fleet.with_promises(positions, residues, holdings)
    return Together(fleet=fleet, holdings=holdings, reasons=reasons)


def _rounds(asks: Sequence[tuple[Outstanding, ...]]) -> list[_Round]:
    """Everything that is wanted, what is alike in one round, no cluster twice in one."""
    rounds: list[_Round] = []
    for place, ask in enumerate(asks):
        for each in ask:
            for other in rounds:
                if place not in other.wanted and (
                    other.requirements is each.requirements
                    or other.requirements == each.requirements
                ):
                    break
            else:
                other = _Round(requirements=each.requirements)
                rounds.append(other)
            other.wanted[place] = each
    return rounds


def _shortages(packing: Packing, one: _Round) -> dict[int, str]:
    """Where not everything finds room, in both views if that is what was promised."""
    filled_c = packing.placed_s[View.FILLED :: VIEWS].tolist()
    spread_c = packing.placed_s[View.SPREAD :: VIEWS].tolist()
    texts = {}
    for place, wanted in one.wanted.items():
        most = filled_c[place]
        if wanted.certificate is PromiseCertificate.CAREFUL:
            most = min(most, spread_c[place])
        if most < wanted.to_pack:
            texts[place] = shortage_text(most, wanted)
    return texts


def shortage_text(most: int, wanted: Outstanding) -> str:
    """Why something is refused for want of room."""
    return f"{most} of {wanted.to_pack} replicas find room"
