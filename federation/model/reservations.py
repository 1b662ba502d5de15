"""What was promised to bindings and what agents have seen of it: values, and what is outstanding.

Pure; amounts in base units, replicas are whole. Must not pack anything, nor remember anything:
``federation.capacity.ledger`` remembers, ``federation.capacity.reserve`` packs.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from federation.model.shapes import Echo, ReservationKey, Shape, request_shape
from federation.model.workload import ReplicaRequirements

LEAST_RESERVE: Final = 2
MOST_RESERVE: Final = 8
# One replica is kept back for so many of other shapes that are on their way, or fewer: with 24,
# studies of bursts still left 2 of 5,914 pods pending, with 16 none.
RESERVE_PART: Final = 16


class PromiseCertificate(StrEnum):
    """What a promise is worth; see the reservations page of the documentation.

    The last two are what nobody asks for: there was nothing to pack into. SUMMARY_CHECKED: totals
    and grade counts left room beside all that was promised.
    """

    PLANNED = "planned"
    CAREFUL = "careful"
    STRICT = "strict"
    SUMMARY_CHECKED = "summary-checked"
    UNPROVEN = "unproven"

    @property
    def is_packed(self) -> bool:
        """Whether nodes showed that there is room."""
        return (
            self is not PromiseCertificate.SUMMARY_CHECKED
            and self is not PromiseCertificate.UNPROVEN
        )


def careful_reserve(late: int) -> int:
    """How many replicas are kept back of a careful promise in a cluster, where best fit and
    spreading leave unequal room: one more for each promised replica that is ``late``, which finds
    no room in the newest report.

    With two, studies left a fourth to a half as many pods pending; more than a few help no more.
    """
    return min(LEAST_RESERVE + late, MOST_RESERVE)


class Share(NamedTuple):
    """What one decision gives one component of a binding in one cluster."""

    requirements: ReplicaRequirements
    replicas: int
    component: str = ""
    certificate: PromiseCertificate = PromiseCertificate.CAREFUL


class Growth(NamedTuple):
    """Replicas that were promised at one version of a cluster."""

    version: int
    replicas: int


class Reservation(NamedTuple):
    """Replicas of one shape that a binding holds in a cluster, until pods are seen in their place.

    ``requirements`` are the shape with its node claim. ``decisions`` made or confirmed it, the
    newest last. Agents that know ``interest_version`` of the cluster look for its pods. An older
    shape of its component has 0 replicas and is looked for all the same. ``adopted`` replicas ran
    before the binding was registered: they count as echoed until the agent says. ``finished`` pods
    of a Job succeeded: they count as echoed for good.

    At ``grown_version`` of the cluster it last got more: promises are packed in that order, each in
    its own place. ``earlier`` are those of before, the oldest first: at which version, and how many
    replicas. Pods stand for the oldest first.
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
        """The newest decision."""
        return self.decisions[-1]

    @property
    def growths(self) -> tuple[Growth, ...]:
        """All of it by the version at which it was promised, the oldest first."""
        newest = self.replicas - sum([growth.replicas for growth in self.earlier])
        return (*self.earlier, Growth(self.grown_version, newest))


class Outstanding(NamedTuple):
    """What is promised and in nobody's report yet.

    ``in_cells`` replicas are missing from free amounts of nodes, ``in_summary`` from totals, which
    count pods that wait for a node. ``credited`` of those in cells will take the place of older
    pods of their own binding.
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
        """Replicas that need room in the cells."""
        return self.in_cells - self.credited


def is_repeated(
    promise: Outstanding | Reservation,
    requirements: ReplicaRequirements,
    certificate: PromiseCertificate,
) -> bool:
    """Tell whether more of such replicas is more of the very same, which is promised in addition.

    One rule for what is available, for what is packed, and for the order that a ledger keeps.
    """
    return promise.certificate is certificate and promise.requirements == requirements


def outstanding_of(
    reservation: Reservation, echo: Echo | None, older: Sequence[tuple[Reservation, Echo]] = ()
) -> Outstanding:
    """What is outstanding of the newest shape of a component.

    ``older`` are its older shapes with what the report counts of them: bound replicas that asked
    for at least as much, on nodes chosen by the same claim, are credited one for one; not to
    strict promises, which must hold while old and new pods are there together.
    """
    if echo is None and not older:
        # So it is with every new promise.
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
        givers = sum(each.bound for old, each in older if _makes_room(old, reservation))
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
    """A reservation's outstanding replicas, by the versions at which they were promised."""
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
            # By name it would take twice as long, for thousands of clusters.
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
    """Whether the node of an old replica surely has room for a new one once the old one goes."""
    had = old.requirements.request
    return old.requirements.node_claim == new.requirements.node_claim and all(
        amount <= had.get(name, 0) for name, amount in new.shape
    )
