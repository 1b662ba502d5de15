"""The shares that a decision asks clusters to reserve, the reservations, and their certificates.

Also the promises of a placed binding that stay. Pure functions and values. Must not know whether
the clusters have the capacity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from federation.capacity.assignments import worth
from federation.capacity.careful import CAREFULLY, PromiseTerms
from federation.capacity.cluster_room import ReportId
from federation.capacity.holdings import NewReservations
from federation.capacity.ledger import LedgerDraft
from federation.capacity.own_promises import KeptPromise
from federation.model.arrays import BoolArray
from federation.model.placement import Binding, Certificate
from federation.model.reservations import Outstanding, PromiseCertificate, Reservation, Share
from federation.model.shapes import request_shape
from federation.model.workload import ReplicaRequirements
from federation.services.fleet.snapshot import FleetSnapshot
from federation.services.journal import ClusterShares
from federation.services.values import ClusterPromise

NO_REQUIREMENTS = ReplicaRequirements(request={})
NO_SHARES: Mapping[str, tuple[Share, ...]] = MappingProxyType({})
NOT_PLANNED = "no placer of ours is there to follow plans"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRequest:
    """The shares by cluster that a decision asks to reserve; ``left`` clusters release all.

    ``adopted`` are the replicas, by cluster and component, that ran before the binding was stored.

    ``watched`` are shares in clusters that the binding leaves. A share of no replicas makes the
    agent look for remaining pods. A share with replicas stays until the pods elsewhere run.

    ``checked`` has clusters without visible nodes, with the number of additional units that their
    totals and grade counts must have capacity for; one unit requests ``unit``.

    ``terms`` limit the capacity that the shares may take. ``placed`` are the clusters where the
    binding is now.
    """

    key: str
    decision: str
    certificate: Certificate | None
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
    """The outcome of a reservation: changes of ledgers by cluster, and a promise for each share.

    ``reservations`` are all reservations that the binding now has, in the order of cluster names.
    """

    clusters: Mapping[str, ClusterShares]
    reservations: tuple[Reservation, ...]
    promises: tuple[ClusterPromise, ...]


def outstanding_units(binding: Binding, key: str, units: int) -> tuple[Outstanding, ...]:
    """Return promises of so many replicas, or whole sets, under a key of their own."""
    return tuple(
        Outstanding(key, share.requirements, share.replicas * units, share.component)
        for share in parts(binding, 1)
    )


def note_of(requested: Certificate | None, promised: PromiseCertificate) -> str:
    """Return why the certificate of a promise is not the requested one."""
    if promised is PromiseCertificate.UNPROVEN:
        return "nothing shows whether there is room"
    if promised is PromiseCertificate.SUMMARY_CHECKED:
        return "nothing shows whether its nodes have room"
    return NOT_PLANNED if requested is Certificate.PLANNED else ""


def certificate_by_name(
    certificate: Certificate | None,
    positions: Mapping[str, int],
    told_c: BoolArray,
    planned_c: BoolArray,
) -> Callable[[str], PromiseCertificate]:
    """Return a function from a cluster's name to the certificate of a promise there.

    ``told_c`` marks clusters whose pools show where the workload fits, ``planned_c`` clusters whose
    agents follow plans of nodes.
    """
    certificates = {
        (shows_nodes, follows_plans): worth(
            certificate, carries_labels=shows_nodes, follows_plans=follows_plans
        )
        for shows_nodes in (False, True)
        for follows_plans in (False, True)
    }

    def certificate_in(name: str) -> PromiseCertificate:
        position = positions.get(name)
        if position is None:
            return PromiseCertificate.UNPROVEN
        return certificates[bool(told_c[position]), bool(planned_c[position])]

    return certificate_in


def adopted_by_name(binding: Binding, names: Collection[str]) -> Mapping[str, Mapping[str, int]]:
    """Return the running replicas of a binding in the named clusters, by cluster and component."""
    return {
        target.name: {part.component: part.replicas for part in parts(binding, target.replicas)}
        for target in binding.clusters
        if target.name in names
    }


def terms_at(request: ReservationRequest, positions: Mapping[str, int]) -> PromiseTerms:
    """Return the terms of a request with the positions of clusters where the binding is placed."""
    placed = frozenset(positions[name] for name in request.placed if name in positions)
    return replace(request.terms, placed=placed)


def promises_of(
    request: ReservationRequest, report_in: Callable[[str], ReportId | None]
) -> tuple[ClusterPromise, ...]:
    """Return a promise for each share, with the report that the share was packed into."""
    promises = []
    for name, shares in sorted(request.shares.items()):
        promised, note = shares[0].certificate, ""
        if request.certificate is not None and promised.value != request.certificate.value:
            note = note_of(request.certificate, promised)
        epoch, sequence = report_in(name) or (0, 0)
        promises.append(ClusterPromise(name, promised, epoch, sequence, note))
    return tuple(promises)


def parts(
    binding: Binding,
    replicas: int,
    certificate: PromiseCertificate = PromiseCertificate.CAREFUL,
) -> tuple[Share, ...]:
    """Return the shares of one cluster; a workload of components goes there as a whole set."""
    if binding.components:
        return tuple(
            Share(
                component=component.name,
                requirements=component.requirements,
                replicas=component.replicas,
                certificate=certificate,
            )
            for component in binding.components
        )
    return (Share(requirements=binding.requirements, replicas=replicas, certificate=certificate),)


def shares_of(reservations: Iterable[Reservation]) -> tuple[Share, ...]:
    """Return the shares that led to these reservations."""
    return tuple(
        Share(
            component=reservation.component,
            requirements=reservation.requirements,
            replicas=reservation.replicas,
            certificate=reservation.certificate,
        )
        for reservation in reservations
    )


_NOTHING = KeptPromise((), 0)


def kept_promises(
    binding: Binding, snapshot: FleetSnapshot, changed: Mapping[int, LedgerDraft]
) -> dict[int, KeptPromise]:
    """Return the promises of a binding by position of its clusters, and how many replicas stay.

    The ledgers that were ``changed`` since the snapshot replace those of the snapshot.
    """
    first, running = NewReservations(binding.key, ""), Counter[int]()
    sought = (("", request_shape(binding.requirements.request)),)
    for target in binding.clusters:
        position = snapshot.positions.get(target.name)
        if position is not None:
            running[position] += target.replicas
    promises = {}
    for position, replicas in running.items():
        ledger = changed.get(position) or snapshot.ledgers[position]
        holding = ledger.reservations_of(binding.key)
        if holding is None or not holding.reservations:
            promises[position] = _NOTHING
            continue
        if holding.sought == sought and holding.reservations[0].replicas == replicas:
            # The usual case: nothing changes.
            staying = holding.outstanding
        else:
            share = Share(binding.requirements, replicas)
            working = changed.get(position) or LedgerDraft(snapshot.ledgers[position])
            staying = working.draft(first, holding, (share,)).outstanding
        replicas_kept = sum([promise.to_pack for promise in staying])
        promises[position] = KeptPromise(holding.outstanding, replicas_kept)
    return promises
