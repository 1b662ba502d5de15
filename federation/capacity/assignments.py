"""What is outstanding in one cluster, and where each of it is packed: worked out when asked.

Pure and immutable. Must not pack, nor know what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from federation.capacity.packing import Take, Takes
from federation.model.pools.bounds import per_replica
from federation.model.pools.values import Pools
from federation.model.reservations import (
    RESERVE_PART,
    Outstanding,
    PromiseCertificate,
    careful_reserve,
)
from federation.model.shapes import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingStep:
    """``replicas`` on each of ``nodes`` nodes that surely have ``free``, in the pool at ``pool``.

    ``free`` is in the order of the cells' resources, after all earlier steps.
    """

    pool: int
    free: tuple[int, ...]
    nodes: int
    replicas: int


class Assignment(NamedTuple):
    """Something outstanding, and how many of its replicas found no room.

    It is packed in what ``takes`` has of ``cluster``, after ``before`` other replicas of its shape;
    nowhere in a cluster that never reported any cells. ``resources`` are those of its cells.
    """

    outstanding: Outstanding
    takes: Takes | None = None
    cluster: int = 0
    resources: tuple[str, ...] = ()
    before: int = 0
    unplaced: int = 0

    @property
    def steps(self) -> tuple[PackingStep, ...]:
        """How it is packed."""
        if self.takes is None:
            return ()
        demanded = per_replica(self.outstanding.requirements.request)
        amount_r = [demanded.get(name, 0) for name in self.resources]
        takes = self.takes.of(self.cluster, self.resources)
        placed = self.outstanding.to_pack - self.unplaced
        return tuple(_steps(takes, amount_r, self.before, placed))

    @property
    def contending(self) -> Outstanding:
        """What strict promises have to reckon with; one that lost its room is strict no more."""
        if self.is_broken:
            return self.outstanding._replace(certificate=PromiseCertificate.CAREFUL)
        return self.outstanding

    @property
    def is_broken(self) -> bool:
        """Whether it was packed once and finds no room any more."""
        return self.unplaced > 0 and self.outstanding.certificate.is_packed


class Held(NamedTuple):
    """Everything outstanding in a cluster, in the order it was packed: ``more`` after all that was
    held ``before``, which later promises share.

    That comes to so many ``replicas``, all of the ``only`` shape where there is no other.
    ``arrived`` is all of it as it was promised, where it had to be packed in another order.
    """

    before: Held | None = None
    more: tuple[Assignment, ...] = ()
    is_overcommitted: bool = False
    is_strict: bool = False
    replicas: int = 0
    only: Shape | None = None
    arrived: tuple[Outstanding, ...] = ()

    @property
    def every(self) -> tuple[Assignment, ...]:
        parts: list[tuple[Assignment, ...]] = []
        held: Held | None = self
        while held is not None:
            parts.append(held.more)
            held = held.before
        return tuple(chain.from_iterable(reversed(parts)))

    @property
    def outstanding(self) -> tuple[Outstanding, ...]:
        """All of it in the order in which it was promised."""
        return self.arrived or tuple([assignment.outstanding for assignment in self.every])

    def of_binding(self, binding: str) -> tuple[Outstanding, ...]:
        """One binding's promises, in the order in which it was promised."""
        if self.arrived:
            return tuple([one for one in self.arrived if one.binding == binding])
        return tuple([one.outstanding for one in self.every if one.outstanding.binding == binding])

    @property
    def late(self) -> int:
        """How many promised replicas find no room in the newest report."""
        if not self.is_overcommitted:
            return 0
        return sum([each.unplaced for each in self.every if each.unplaced and each.is_broken])

    @property
    def reserve(self) -> int:
        """How many replicas are kept back of a careful promise where the views differ."""
        return careful_reserve(self.late)

    @property
    def most_kept_back(self) -> int:
        """The most of a careful promise that is kept back, of whatever shape."""
        return self.reserve + -(-self.replicas // RESERVE_PART)

    def on_their_way(self, shape: Shape) -> int:
        """How many replicas may land anywhere, none where all are of this very shape: wherever
        those land, each takes the room of one.
        """
        return 0 if self.only == shape else self.replicas

    def with_more(self, more: Sequence[Assignment]) -> Held:
        """With these after the others."""
        replicas, only = self.replicas, self.only
        for each in more:
            if replicas and only is None:
                # Shapes cost more than all else here, and one more of several tells nothing.
                replicas += each.outstanding.to_pack
            else:
                replicas, only = tallied(
                    replicas, only, each.outstanding.to_pack, each.outstanding.shape
                )
        return Held(
            before=self,
            more=tuple(more),
            is_overcommitted=self.is_overcommitted or any(each.is_broken for each in more),
            is_strict=self.is_strict
            or any(each.outstanding.certificate is PromiseCertificate.STRICT for each in more),
            replicas=replicas,
            only=only,
            arrived=self.arrived and (*self.arrived, *(each.outstanding for each in more)),
        )


def tallied(replicas: int, only: Shape | None, more: int, shape: Shape) -> tuple[int, Shape | None]:
    """So many replicas of one shape, or of several, with more of a shape."""
    if not more:
        return replicas, only
    return replicas + more, shape if not replicas or only == shape else None


class Alike:
    """Numbers of what is packed in the same way, in the order in which each kind is met first.

    ``firsts`` are what was met first of each. Whoever asks must keep what was asked about.
    """

    def __init__(self) -> None:
        self.firsts: list[Outstanding] = []
        self._by_shape: dict[tuple[Shape, bool], list[int]] = {}
        # As requests are written: that is sooner told than their shapes.
        self._by_request: dict[tuple[object, int], list[int]] = {}
        # Bindings that ask for the same mostly share these values.
        self._known: dict[tuple[int, int, int], int] = {}

    def number(self, one: Outstanding) -> int:
        """The same for all that ``is_alike``."""
        wanted = one.requirements
        same = id(wanted.request), id(wanted.node_claim), id(one.certificate)
        number = self._known.get(same)
        if number is None:
            number = self._known[same] = self._looked_up(one)
        return number

    def _looked_up(self, one: Outstanding) -> int:
        written = tuple(one.requirements.request.items()), id(one.certificate)
        candidates = self._by_request.get(written)
        if candidates is None:
            shape = one.shape, one.certificate.is_packed
            candidates = self._by_request[written] = self._by_shape.setdefault(shape, [])
        claim = one.requirements.node_claim
        for number in candidates:
            if self.firsts[number].requirements.node_claim == claim:
                return number
        candidates.append(len(self.firsts))
        self.firsts.append(one)
        return candidates[-1]


def outstanding_alike(
    outstanding: Iterable[Outstanding], alike: Alike | None = None
) -> list[list[Outstanding]]:
    """What is packed in the same way together, in the order of the first of each group."""
    alike = alike or Alike()
    groups: dict[int, list[Outstanding]] = {}
    for each in outstanding:
        groups.setdefault(alike.number(each), []).append(each)
    return list(groups.values())


def is_alike(one: Outstanding, other: Outstanding) -> bool:
    """Whether two are packed in the same way."""
    return (
        one.shape == other.shape
        and one.certificate.is_packed == other.certificate.is_packed
        and one.requirements.node_claim == other.requirements.node_claim
    )


def runs_alike(outstanding: Iterable[Outstanding]) -> list[list[Outstanding]]:
    """What is packed in the same way and comes one after the other."""
    runs: list[list[Outstanding]] = []
    for each in outstanding:
        if not (runs and is_alike(runs[-1][-1], each)):
            runs.append([])
        runs[-1].append(each)
    return runs


def by_size(pools: Pools, groups: Sequence[Sequence[Outstanding]]) -> list[Sequence[Outstanding]]:
    """What is packed in the same way, largest first: by the largest share of a resource of the
    cluster that one replica takes.
    """
    total_r = (pools.cells.min_rk.astype(np.float64) * pools.cells.count_k).sum(axis=1)
    total_r = np.maximum(total_r, 1.0)
    totals = dict(zip(pools.cells.resources, total_r.tolist(), strict=True))

    def share(group: Sequence[Outstanding]) -> float:
        demanded = per_replica(group[0].requirements.request)
        return float(max([amount / totals.get(name, 1.0) for name, amount in demanded.items()]))

    return sorted(groups, key=share, reverse=True)


def holdings_of(
    alike: Sequence[Outstanding],
    placed: int,
    takes: Takes,
    resources: tuple[str, ...],
    cluster: int = 0,
) -> list[Assignment]:
    """How ``placed`` replicas of a group are shared among it: who comes first has room first."""
    holdings, before = [], 0
    for each in alike:
        wanted = each.to_pack
        here = min(wanted, placed - before)
        # By name it would take twice as long, for all that is outstanding in every cluster.
        holdings.append(Assignment(each, takes, cluster, resources, before, wanted - here))
        before += here
    return holdings


def _steps(
    takes: Iterable[Take], amount_r: Sequence[int], before: int, replicas: int
) -> Iterator[PackingStep]:
    """The steps of ``replicas`` that come after ``before`` others of the same shape."""
    for take in takes:
        skipped = min(before, take.nodes * take.replicas)
        before -= skipped
        nodes, on_first = divmod(skipped, take.replicas)
        nodes = take.nodes - nodes
        while replicas and nodes:
            here = take.replicas - on_first
            full = 1 if on_first else min(nodes, replicas // here)
            each = min(here, replicas)
            yield PackingStep(
                pool=take.pool,
                free=tuple(
                    free - on_first * amount
                    for free, amount in zip(take.free, amount_r, strict=True)
                ),
                nodes=max(full, 1),
                replicas=each,
            )
            replicas -= each * max(full, 1)
            nodes -= max(full, 1)
            on_first = 0
