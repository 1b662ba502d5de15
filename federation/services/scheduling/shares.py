"""The shares that a decision asks clusters for, what was reserved, and what certificates say.

Pure. Must not know whether there is room for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from federation.capacity.careful import CAREFULLY, PromiseTerms
from federation.capacity.cluster_room import ReportId
from federation.capacity.worth import worth
from federation.model.arrays import BoolArray
from federation.model.placement import Binding, Certificate
from federation.model.reservations import PromiseCertificate, Reservation, Share
from federation.model.workload import ReplicaRequirements
from federation.services.journal import ClusterShares
from federation.services.values import ClusterPromise

NO_REQUIREMENTS = ReplicaRequirements(request={})
NO_SHARES: Mapping[str, tuple[Share, ...]] = MappingProxyType({})
NOT_PLANNED = "no placer of ours is there to follow plans"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRequest:
    """What a decision wants reserved: shares by cluster, none where it lets go.

    ``adopted`` are the replicas by cluster and component that ran before the binding was known.
    ``watched`` are shares in clusters that it leaves: of no replicas where its pods are looked for
    alone, and as they were where they stay until others run.
    ``checked`` says of how many more units, of which each asks for ``unit``, totals and grade
    counts have to leave room for. ``terms`` say what the shares may take of the room; the binding
    is ``placed`` in the clusters of these names.
    """

    key: str
    decision: str
    asked: Certificate | None
    shares: Mapping[str, tuple[Share, ...]]
    left: tuple[str, ...] = ()
    adopted: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    watched: Mapping[str, tuple[Share, ...]] = field(default_factory=dict)
    unit: ReplicaRequirements = NO_REQUIREMENTS
    checked: Mapping[str, int] = field(default_factory=dict)
    terms: PromiseTerms = CAREFULLY
    placed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """What was reserved for a decision: the ledgers' changes, and what the shares are worth.

    ``reservations`` are all that the binding holds now, by ascending cluster.
    """

    clusters: Mapping[str, ClusterShares]
    reservations: tuple[Reservation, ...]
    promises: tuple[ClusterPromise, ...]


def units_of(binding: Binding, count: int) -> Iterable[tuple[Share, int]]:
    """What so many replicas, or sets, are made of: each part, and how many times."""
    return ((part, count) for part in parts(binding, 1))


def note_of(asked: Certificate | None, worth: PromiseCertificate) -> str:
    """Why a promise is worth something else than was asked for."""
    if worth is PromiseCertificate.UNPROVEN:
        return "nothing shows whether there is room"
    if worth is PromiseCertificate.SUMMARY_CHECKED:
        return "nothing shows whether its nodes have room"
    return NOT_PLANNED if asked is Certificate.PLANNED else ""


def worth_by_name(
    asked: Certificate | None,
    positions: Mapping[str, int],
    told_c: BoolArray,
    planned_c: BoolArray,
) -> Callable[[str], PromiseCertificate]:
    """What a promise will be worth in a cluster, where it is known which of them can tell, and
    which follow plans.
    """
    worth_by = {
        (told, planned): worth(asked, carries_labels=told, follows_plans=planned)
        for told in (False, True)
        for planned in (False, True)
    }

    def worth_in(name: str) -> PromiseCertificate:
        position = positions.get(name)
        if position is None:
            return PromiseCertificate.UNPROVEN
        return worth_by[bool(told_c[position]), bool(planned_c[position])]

    return worth_in


def adopted_by_name(binding: Binding, names: Collection[str]) -> Mapping[str, Mapping[str, int]]:
    """The replicas of its clusters of these names by component, which run already."""
    return {
        target.name: {each.component: each.replicas for each in parts(binding, target.replicas)}
        for target in binding.clusters
        if target.name in names
    }


def terms_at(request: ReservationRequest, positions: Mapping[str, int]) -> PromiseTerms:
    """The terms of a request, by the positions of the clusters where the binding is placed."""
    placed = frozenset(positions[name] for name in request.placed if name in positions)
    return replace(request.terms, placed=placed)


def promises_of(
    request: ReservationRequest, report_in: Callable[[str], ReportId | None]
) -> tuple[ClusterPromise, ...]:
    """What the shares are worth, by the reports that they were packed into."""
    promises = []
    for name, shares in sorted(request.shares.items()):
        certificate, note = shares[0].certificate, ""
        if request.asked is not None and certificate.value != request.asked.value:
            note = note_of(request.asked, certificate)
        epoch, sequence = report_in(name) or (0, 0)
        promises.append(ClusterPromise(name, certificate, epoch, sequence, note))
    return tuple(promises)


def parts(
    binding: Binding,
    replicas: int,
    certificate: PromiseCertificate = PromiseCertificate.CAREFUL,
) -> tuple[Share, ...]:
    """What one cluster runs of the workload; one of components goes there as a whole."""
    if binding.components:
        return tuple(
            Share(
                component=each.name,
                requirements=each.requirements,
                replicas=each.replicas,
                certificate=certificate,
            )
            for each in binding.components
        )
    return (Share(requirements=binding.requirements, replicas=replicas, certificate=certificate),)


def shares_of(reservations: Iterable[Reservation]) -> tuple[Share, ...]:
    """What was asked for, by what is held of it."""
    return tuple(
        Share(
            component=each.component,
            requirements=each.requirements,
            replicas=each.replicas,
            certificate=each.certificate,
        )
        for each in reservations
    )
