"""What one cluster had promised at every version, reckoned from what was committed alone.

Shares no code with the ledger and the packing it checks. Must not be fast, nor believe anything.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from federation.capacity.cluster_room import ReportId, Room
from federation.model.pools.matching import Match, pool_match
from federation.model.pools.values import Pools
from federation.model.reservations import Outstanding, PromiseCertificate, Share
from federation.model.shapes import Echo, Shape, request_shape
from federation.model.workload import ReplicaRequirements
from lab.slow_packer import Node, after_one, broken_promise, nodes_of

SHUFFLES = 4

# Who wants how much room: (binding, component), what one replica asks for, replicas.
Part = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenReport:
    """A report as its agent sent it: what was free, and what it counted."""

    report: ReportId
    pools: Pools
    interest_version: int = 0
    echoes: tuple[Echo, ...] = ()


@dataclass(slots=True, kw_only=True)
class Held:
    """One shape of one component of a binding; agents look for it since ``since``."""

    requirements: ReplicaRequirements
    certificate: PromiseCertificate
    replicas: int
    since: int
    adopted: int = 0
    finished: int = 0

    @property
    def shape(self) -> Shape:
        return request_shape(self.requirements.request)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Replicas that need room."""

    part: Part
    requirements: ReplicaRequirements
    certificate: PromiseCertificate
    replicas: int


@dataclass(slots=True, kw_only=True)
class SlowLedger:
    """A cluster's promises by (binding, component), of each the newest shape last.

    ``violations`` are what must never happen; ``overcommitted`` how many reports left too little
    room. ``nodes`` are a report's with something outstanding packed, None: not packed yet.
    """

    cluster: str
    version: int = 0
    report: SeenReport | None = None
    held: dict[Part, list[Held]] = field(default_factory=dict)
    nodes: Counter[Node] | None = None
    is_overcommitted: bool = False
    overcommitted: int = 0
    checked: int = 0
    violations: list[str] = field(default_factory=list)

    def decided(
        self,
        version: int,
        binding: str,
        shares: Sequence[Share],
        adopted: Mapping[str, int],
        named: ReportId | None = None,
    ) -> None:
        """A decision gave the binding this; ``named`` is the report it says it was packed into."""
        self._advance(version, binding)
        were = self.demands()
        before = {each.part: each for each in were if each.part[0] == binding}
        self._replace(binding, shares, adopted)
        demands = self.demands()
        grown = [
            each
            for each in demands
            if each.part[0] == binding and not _covers(before.get(each.part), each)
        ]
        if grown:
            self._check_grown(binding, demands, grown, before, were)
        if named is not None and self.report is not None and named != self.report.report:
            self.violations.append(
                f"{self.cluster}@{version}: {binding} names report {named}, not "
                f"{self.report.report}"
            )

    def released(self, version: int, binding: str) -> None:
        self._advance(version, binding)
        for part in [part for part in self.held if part[0] == binding]:
            del self.held[part]

    def reported(self, version: int, report: SeenReport) -> None:
        self._advance(version, str(report.report))
        if self.report is not None and report.report <= self.report.report:
            self.violations.append(f"{self.cluster}@{version}: {report.report} is not newer")
        self.report = report
        for (binding, component), shapes in self.held.items():
            for each in shapes:
                if each.since <= report.interest_version:
                    each.adopted = 0
                    echo = self._echo(binding, component, each)
                    each.finished = max(each.finished, echo.finished if echo else 0)
        self.nodes = self._packed(self.demands())
        self.is_overcommitted = self.nodes is None
        self.overcommitted += self.is_overcommitted

    def demands(self) -> list[Demand]:
        """All that is outstanding and was proven to have room, what is credited left out."""
        found = []
        for part, shapes in self.held.items():
            newest = shapes[-1]
            replicas = self._to_pack(part, shapes)
            if replicas and newest.certificate is not PromiseCertificate.UNPROVEN:
                found.append(
                    Demand(
                        part=part,
                        requirements=newest.requirements,
                        certificate=newest.certificate,
                        replicas=replicas,
                    )
                )
        return found

    def newest(self) -> dict[Part, int]:
        """Replicas held, by binding and component."""
        return {part: shapes[-1].replicas for part, shapes in self.held.items()}

    def packs(self) -> bool:
        """Whether all that is outstanding now packs into the newest report."""
        return self._packed(self.demands()) is not None

    def _advance(self, version: int, what: str) -> None:
        if version != self.version + 1:
            self.violations.append(
                f"{self.cluster}: {what} is version {version} after {self.version}"
            )
        self.version = version

    def _replace(self, binding: str, shares: Sequence[Share], adopted: Mapping[str, int]) -> None:
        for part, shapes in self.held.items():
            if part[0] == binding:
                for each in shapes:
                    each.replicas = 0
        for share in shares:
            shapes = self.held.setdefault((binding, share.component), [])
            shape = request_shape(share.requirements.request)
            known = next((each for each in shapes if each.shape == shape), None)
            if known is None:
                first = adopted.get(share.component, 0)
                known = Held(
                    requirements=share.requirements,
                    certificate=share.certificate,
                    replicas=0,
                    since=self.version,
                    adopted=first,
                )
            else:
                shapes.remove(known)
            known.requirements, known.certificate = share.requirements, share.certificate
            known.replicas = share.replicas
            shapes.append(known)

    def _echo(self, binding: str, component: str, held: Held) -> Echo | None:
        if self.report is None or held.since > self.report.interest_version:
            return None
        return next(
            (
                each
                for each in self.report.echoes
                if (each.binding, each.component, each.shape) == (binding, component, held.shape)
            ),
            None,
        )

    def _to_pack(self, part: Part, shapes: Sequence[Held]) -> int:
        *older, newest = shapes
        echo = self._echo(*part, newest)
        bound = echo.bound if echo else 0
        missing = max(0, newest.replicas - max(newest.adopted, newest.finished + bound))
        if newest.certificate is PromiseCertificate.STRICT:
            return missing
        for each in older:
            seen = self._echo(*part, each)
            had = each.requirements
            if (
                seen
                and had.node_claim == newest.requirements.node_claim
                and all(amount <= had.request.get(name, 0) for name, amount in newest.shape)
            ):
                missing = max(0, missing - seen.bound)
        return missing

    def _check_grown(
        self,
        binding: str,
        demands: Sequence[Demand],
        grown: Sequence[Demand],
        before: Mapping[Part, Demand],
        were: Sequence[Demand],
    ) -> None:
        """I1. Room that was given back meanwhile is looked at only when it is needed.

        Where promises lost their room, no more may be without than were.
        """
        self.checked += 1
        if self.nodes is not None:
            nodes = Counter(self.nodes)
            more = [
                (each.requirements, each.replicas - _same(before.get(each.part), each))
                for each in grown
            ]
            if self._place(nodes, more):
                self.nodes = nodes
                return
        self.nodes = self._packed(demands)
        if self.nodes is None and self._stuck(demands) > self._room(were).stuck():
            self.violations.append(
                f"{self.cluster}@{self.version}: with {binding} outstanding does not pack into "
                f"{self.report.report if self.report else 'any report'}: {demands}"
            )

    def _packed(self, demands: Sequence[Demand]) -> Counter[Node] | None:
        """The nodes of the newest report with everything placed; None: no order that is tried."""
        if not demands:
            return nodes_of(self.report.pools) if self.report else Counter()
        if self.report is None:
            return None
        for order in _orders(demands):
            nodes = nodes_of(self.report.pools)
            if self._place(nodes, ((each.requirements, each.replicas) for each in order)):
                return nodes
        return self._witnessed(demands)

    def _witnessed(self, demands: Sequence[Demand]) -> Counter[Node] | None:
        """The product's own packing, if the replay of its steps finds nothing wrong with it."""
        room = self._room(demands)
        if room.overcommitted or broken_promise(room.pools, room.holdings):
            return None
        return nodes_of(room.filled)

    def _stuck(self, demands: Sequence[Demand]) -> int:
        """How many replicas find no room, by the replay of the product's own packing."""
        room = self._room(demands)
        told = broken_promise(room.pools, room.holdings)
        return sum(each.replicas for each in demands) if told else room.stuck()

    def _room(self, demands: Sequence[Demand]) -> Room:
        """The newest report with everything packed by the product itself."""
        assert self.report is not None
        outstanding = [
            Outstanding(
                binding=each.part[0],
                component=each.part[1],
                requirements=each.requirements,
                certificate=each.certificate,
                in_cells=each.replicas,
            )
            for each in demands
        ]
        return Room.of(self.report.report, self.report.pools, outstanding)

    def _place(
        self, nodes: Counter[Node], demands: Iterable[tuple[ReplicaRequirements, int]]
    ) -> bool:
        """One replica after the other, each on the smallest node that has room for it."""
        assert self.report is not None
        pools = self.report.pools
        resources = pools.cells.resources
        for requirements, replicas in demands:
            suits = [
                pool_match(pool, pools.label_keys, requirements.node_claim) is Match.YES
                for pool in pools.pools
            ]
            for _ in range(replicas):
                fitting = [
                    (sum(node[1]), node, left)
                    for node in +nodes
                    if suits[node[0]] and (left := after_one(node, resources, requirements.request))
                ]
                if not fitting:
                    return False
                _, node, left = min(fitting)
                nodes[node] -= 1
                if not nodes[node]:
                    del nodes[node]
                nodes[left] += 1
        return True


def _orders(demands: Sequence[Demand]) -> Iterable[Sequence[Demand]]:
    yield demands
    yield sorted(demands, key=lambda each: -sum(each.requirements.request.values()))
    for seed in range(SHUFFLES):
        yield random.Random(seed).sample(demands, len(demands))


def _covers(before: Demand | None, now: Demand) -> bool:
    return before is not None and _same(before, now) >= now.replicas


def _same(before: Demand | None, now: Demand) -> int:
    """Replicas of ``now`` that had room before."""
    if before is None or before.requirements != now.requirements:
        return 0
    return min(before.replicas, now.replicas)
