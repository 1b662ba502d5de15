"""Promises to bindings and their echoes in reports: values, and what is outstanding.

Pure; amounts in base units, replicas are whole. Must not pack or remember anything:
``federation.capacity.reserve`` packs, ``federation.capacity.ledger`` remembers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from federation.model.shapes import Echo, ReservationKey, Shape, request_shape
from federation.model.workload import ReplicaRequirements

MIN_RESERVE: Final = 2
MAX_RESERVE: Final = 8
# One replica is kept back for each 16 outstanding replicas of other shapes, rounded up. With 24,
# studies of bursts (lab/truth) left 2 of 5,914 pods pending; with 16, none.
RESERVE_PART: Final = 16


class PromiseCertificate(StrEnum):
    """The worth of a promise; see docs/reservations.md.

    The last two cannot be asked for: there were no node pools to pack into. SUMMARY_CHECKED: totals
    and grade counts had capacity beside all promises.
    """

    PLANNED = "planned"
    CAREFUL = "careful"
    STRICT = "strict"
    SUMMARY_CHECKED = "summary-checked"
    UNPROVEN = "unproven"

    @property
    def is_packed(self) -> bool:
        """Return whether the promise was packed into node pools."""
        return (
            self is not PromiseCertificate.SUMMARY_CHECKED
            and self is not PromiseCertificate.UNPROVEN
        )


def careful_reserve(late: int) -> int:
    """Return how many replicas a careful promise keeps back in a cluster.

    This applies where best fit and spreading leave different capacity. Each promised replica that
    is ``late``, without capacity in the newest report, adds one. In studies, keeping back two left
    a quarter to a half as many pods pending; more than a few did not help further.
    """
    return min(MIN_RESERVE + late, MAX_RESERVE)


class Share(NamedTuple):
    """The share of one component of a binding that a decision gives to one cluster."""

    requirements: ReplicaRequirements
    replicas: int
    component: str = ""
    certificate: PromiseCertificate = PromiseCertificate.CAREFUL


class Growth(NamedTuple):
    """Replicas that were promised at one version of a cluster."""

    version: int
    replicas: int


class Reservation(NamedTuple):
    """Replicas of one shape that a binding reserves in a cluster, until their pods are reported.

    ``requirements`` are the shape with its node claim. ``decisions`` made or confirmed it, the
    newest last. Agents that know ``interest_version`` of the cluster look for its pods. An older
    shape of its component has 0 replicas, but its pods are still looked for. ``adopted`` replicas
    ran before the binding was registered: they count as bound until the agent reports. ``finished``
    pods of a Job succeeded: they count as bound for good.

    At ``grown_version`` of the cluster it last grew: promises are packed in that order. ``earlier``
    are its growths before that, oldest first. Pods count for the oldest growth first.
    """

    binding: str
    cluster: str
    requirements: ReplicaRequirements
    replicas: int
    decisions: tuple[str, ...]
    component: str = ""
    certificate: PromiseCertificate = PromiseCertificate.CAREFUL
    interest_version: int = 0
    adopted: int = 0
    finished: int = 0
    grown_version: int = 0
    earlier: tuple[Growth, ...] = ()

    @property
    def key(self) -> ReservationKey:
        return ReservationKey(self.binding, self.component, self.shape)

    @property
    def shape(self) -> Shape:
        return request_shape(self.requirements.request)

    @property
    def decision(self) -> str:
        """Return the newest decision."""
        return self.decisions[-1]

    @property
    def growths(self) -> tuple[Growth, ...]:
        """Return all replicas by the version at which they were promised, oldest first."""
        newest = self.replicas - sum([growth.replicas for growth in self.earlier])
        return (*self.earlier, Growth(self.grown_version, newest))


class Outstanding(NamedTuple):
    """Promised replicas that are not in a report yet.

    ``in_cells`` replicas are not bound: the free amounts of nodes still include their resources.
    ``in_summary`` of them are not counted by totals, which include pods that wait for a node.
    ``credited`` of those in cells will replace older pods of the same binding.
    """

    binding: str
    requirements: ReplicaRequirements
    in_cells: int
    component: str = ""
    certificate: PromiseCertificate = PromiseCertificate.CAREFUL
    in_summary: int = 0
    credited: int = 0

    @property
    def shape(self) -> Shape:
        return request_shape(self.requirements.request)

    @property
    def to_pack(self) -> int:
        """Return the replicas that need capacity in the cells."""
        return self.in_cells - self.credited


class PackingOrder(NamedTuple):
    """Outstanding promises of a cluster, in the order in which they were made.

    The first ``grouped`` of them, those older than the cluster's newest report, are packed kind by
    kind. Every later one is packed by itself, so that all control planes come to the same cells.
    """

    promises: tuple[Outstanding, ...]
    grouped: int

    @classmethod
    def of_report(cls, promises: Sequence[Outstanding]) -> PackingOrder:
        """Return the order of promises that are all older than the report."""
        return cls(tuple(promises), len(promises))

    @property
    def older(self) -> tuple[Outstanding, ...]:
        """The promises that are packed kind by kind."""
        return self.promises[: self.grouped]

    @property
    def later(self) -> tuple[Outstanding, ...]:
        """The promises that are packed one by one."""
        return self.promises[self.grouped :]

    def without(self, bindings: Collection[str]) -> PackingOrder:
        """Return the order without the promises of some bindings."""
        older = [promise for promise in self.older if promise.binding not in bindings]
        later = [promise for promise in self.later if promise.binding not in bindings]
        return PackingOrder((*older, *later), len(older))


def is_repeated(
    promise: Outstanding | Reservation,
    requirements: ReplicaRequirements,
    certificate: PromiseCertificate,
) -> bool:
    """Return whether further replicas are added to a promise of the same kind.

    This one rule serves available capacity, packing, and the order in a ledger.
    """
    return promise.certificate is certificate and promise.requirements == requirements


def outstanding_of(
    reservation: Reservation, echo: Echo | None, older: Sequence[tuple[Reservation, Echo]] = ()
) -> Outstanding:
    """Return what is outstanding of the newest shape of a component.

    ``older`` are its older shapes with their echoes. Their bound replicas are credited one for one,
    if they requested at least as much on nodes chosen by the same claim. Strict promises get no
    credit, because they must hold while old and new pods exist together.
    """
    if echo is None and not older:
        # The usual case: a new promise.
        in_cells = max(0, reservation.replicas - max(reservation.adopted, reservation.finished))
        return Outstanding(
            reservation.binding,
            reservation.requirements,
            in_cells,
            reservation.component,
            reservation.certificate,
            in_cells,
        )
    finished = max(reservation.finished, echo.finished if echo else 0)
    bound = max(reservation.adopted, finished + (echo.bound if echo else 0))
    in_cells = max(0, reservation.replicas - bound)
    unbound = echo.unbound if echo else 0
    givers = 0
    if reservation.certificate is not PromiseCertificate.STRICT:
        givers = sum(old_echo.bound for old, old_echo in older if _makes_room(old, reservation))
    return Outstanding(
        binding=reservation.binding,
        component=reservation.component,
        requirements=reservation.requirements,
        certificate=reservation.certificate,
        in_cells=in_cells,
        in_summary=max(0, in_cells - unbound),
        credited=min(in_cells, givers),
    )


def by_growth(reservation: Reservation, whole: Outstanding) -> list[tuple[int, Outstanding]]:
    """Return a reservation's outstanding replicas by the versions at which they were promised."""
    if not reservation.earlier:
        return [(reservation.grown_version, whole)] if whole.in_cells else []
    seen = reservation.replicas - whole.in_cells
    waiting, credited = whole.in_cells - whole.in_summary, whole.credited
    outstanding = []
    for growth in reservation.growths:
        in_cells = max(0, growth.replicas - seen)
        seen -= growth.replicas - in_cells
        if in_cells:
            waiting_now, credited_now = min(in_cells, waiting), min(in_cells, credited)
            waiting, credited = waiting - waiting_now, credited - credited_now
            # Keyword arguments take twice as long, which counts for thousands of clusters.
            part = Outstanding(
                whole.binding,
                whole.requirements,
                in_cells,
                whole.component,
                whole.certificate,
                in_cells - waiting_now,
                credited_now,
            )
            outstanding.append((growth.version, part))
    return outstanding


def _makes_room(old: Reservation, new: Reservation) -> bool:
    """Return whether a node surely has capacity for a new replica once the old one is gone."""
    had = old.requirements.request
    return old.requirements.node_claim == new.requirements.node_claim and all(
        amount <= had.get(name, 0) for name, amount in new.shape
    )
