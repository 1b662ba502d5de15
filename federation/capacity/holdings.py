"""Reservations of one binding in one cluster, and what the newest report echoes of them.

Pure and immutable. Must not know other bindings: ``federation.capacity.ledger`` does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from federation.model.reservations import (
    Growth,
    Outstanding,
    PromiseCertificate,
    Reservation,
    Share,
    by_growth,
    is_repeated,
    outstanding_of,
)
from federation.model.shapes import Echo, Shape, request_shape
from federation.model.workload import NodeClaim

# Pods name the decision that made them; pods of forgotten decisions count as newer ones.
DECISIONS_REMEMBERED: Final = 16
# Keeps the ledger small for a workload that often changes its requests and never runs.
OLDER_SHAPES_REMEMBERED: Final = 8
# Keeps it small for one that often grows: beyond this, the two oldest growths are packed as one.
MAX_EARLIER_GROWTHS: Final = 8

# A component and its shape: pods of different selectors are counted apart.
_Selector: TypeAlias = tuple[str, Shape]
_Echoed: TypeAlias = tuple[Reservation, _Selector, Echo | None]


class BindingReservations(NamedTuple):
    """All reservations of one binding in one cluster.

    ``sought`` and ``echoes`` are parallel to ``reservations``: the component and shape that an
    agent counts pods by, and its counts in the newest report. The newest shape of each component
    comes last. ``outstanding`` promises are packed in the order of ``versions``, the ledger
    versions at which they were made.
    """

    reservations: tuple[Reservation, ...]
    sought: tuple[_Selector, ...]
    echoes: tuple[Echo | None, ...]
    outstanding: tuple[Outstanding, ...] = ()
    versions: tuple[int, ...] = ()

    def is_seen_by(self, echoes: tuple[Echo, ...], interest_version: int) -> bool:
        """Tell whether the binding has one shape, and all its replicas have pods in the report.

        A fast path for the usual case, in which nothing is outstanding.
        """
        if len(echoes) != 1 or len(self.reservations) != 1:
            return False
        (reservation,), (echo,) = self.reservations, echoes
        return (
            echo.bound >= reservation.replicas
            and echo.shape == self.sought[0][1]
            and echo.component == reservation.component
            and echo.finished <= reservation.finished
            and reservation.interest_version <= interest_version
            and not reservation.adopted
        )


class NewReservations:
    """Reservations of a binding in clusters where it had none; equal parts are made once."""

    def __init__(self, binding: str, decision: str) -> None:
        self.binding = binding
        self.decision = decision
        self._decisions = (decision,)
        # By the identity of the shares, which are kept alive for that.
        self._by_shares: dict[int, tuple[tuple[Share, ...], BindingReservations]] = {}

    def of(
        self,
        cluster: str,
        shares: tuple[Share, ...],
        version: int,
        adopted: Mapping[str, int] | None = None,
    ) -> BindingReservations:
        """Return the holding in a cluster whose ledger records it at ``version``."""
        running = adopted or {}
        reservations = [
            Reservation(
                self.binding,
                cluster,
                share.requirements,
                share.replicas,
                self._decisions,
                share.component,
                share.certificate,
                version,
                running.get(share.component, 0),
                0,
                version,
            )
            for share in shares
        ]
        if adopted:
            return _unreported(tuple(reservations))
        cached = self._by_shares.get(id(shares))
        if cached is None:
            cached = self._by_shares[id(shares)] = shares, _unreported(tuple(reservations))
        _, equal = cached
        outstanding = equal.outstanding
        versions = (version,) * len(outstanding)
        return BindingReservations(
            tuple(reservations), equal.sought, equal.echoes, outstanding, versions
        )


def reserve_again(
    current: BindingReservations,
    decision: str,
    shares: Sequence[Share],
    adopted: Mapping[str, int],
    version: int,
    answered_version: int,
) -> BindingReservations:
    """Return the holding of a binding that has one already, after a decision gives it ``shares``.

    The newest report answers ``answered_version``.
    """
    if len(shares) == len(current.reservations) == 1:
        share, reservation, sought = shares[0], current.reservations[0], current.sought
        if sought == (("", request_shape(share.requirements.request)),) and not share.component:
            # The usual case: there is no older shape to remember.
            updated = _continued(
                reservation, share, decision, version, current.echoes[0], is_newest=True
            )
            return _with_outstanding((updated,), sought, current.echoes)
    older = _remembered(current, answered_version)
    newest = _newest_shapes(current)
    by_component: dict[str, _Echoed] = {}
    for share in shares:
        shape = request_shape(share.requirements.request)
        selector = share.component, shape
        held = older.pop(selector, None)
        if held is not None:
            is_newest = newest[share.component] == shape
            reservation = _continued(
                held[0], share, decision, version, held[2], is_newest=is_newest
            )
        else:
            reservation = Reservation(
                binding=current.reservations[0].binding,
                cluster=current.reservations[0].cluster,
                component=share.component,
                requirements=share.requirements,
                replicas=share.replicas,
                decisions=(decision,),
                certificate=share.certificate,
                interest_version=version,
                adopted=adopted.get(share.component, 0),
                grown_version=version,
            )
        by_component[share.component] = reservation, selector, held[2] if held else None
    return _ordered(older.values(), _sets_anew(by_component, version))


def _sets_anew(parts: Mapping[str, _Echoed], version: int) -> Mapping[str, _Echoed]:
    """Promise a whole set anew if any component of it is new, because it is packed as a whole."""
    has_grown = any(
        reservation.replicas and reservation.grown_version == version
        for reservation, _, _ in parts.values()
    )
    if not has_grown or not any(parts):
        return parts
    return {
        component: (reservation._replace(grown_version=version, earlier=()), selector, echo)
        for component, (reservation, selector, echo) in parts.items()
    }


def _continued(
    held: Reservation,
    share: Share,
    decision: str,
    version: int,
    echo: Echo | None,
    *,
    is_newest: bool,
) -> Reservation:
    """Return the reservation after a decision that gives it a share of its own shape.

    It keeps its place in the packing order if its shape ``is_newest`` and it does not grow.
    """
    grown, earlier = _grown(held, share, version, echo) if is_newest else (version, ())
    # Keyword arguments would take twice as long, for thousands of clusters.
    return Reservation(
        held.binding,
        held.cluster,
        share.requirements,
        share.replicas,
        _with_decision(held, decision),
        share.component,
        share.certificate,
        held.interest_version,
        held.adopted,
        held.finished,
        grown,
        earlier,
    )


def _grown(
    held: Reservation, share: Share, version: int, echo: Echo | None
) -> tuple[int, tuple[Growth, ...]]:
    """Return the version at which a reservation got the share, and its earlier growths.

    Additional replicas come last in the order; fewer replicas are taken from the newest growth.
    """
    if not _continues(held, share):
        return version, ()
    if share.replicas > held.replicas:
        newest = Growth(version, share.replicas - held.replicas)
        growths = _unseen_growths((*held.growths, newest), echo)
        if len(growths) > MAX_EARLIER_GROWTHS + 1:
            oldest, second, *newer = growths
            growths = [Growth(oldest.version, oldest.replicas + second.replicas), *newer]
    elif not held.earlier:
        return held.grown_version, ()
    else:
        growths, replicas = list[Growth](), share.replicas
        for growth in _unseen_growths(held.growths, echo):
            if replicas > 0 or not growths:
                growths.append(Growth(growth.version, min(replicas, growth.replicas)))
                replicas -= growth.replicas
    return growths[-1].version, tuple(growths[:-1])


def _unseen_growths(growths: Sequence[Growth], echo: Echo | None) -> list[Growth]:
    """Return the growths; those that pods stand for are merged into the oldest that needs room.

    The outstanding replicas stay the same. Pods that go away are outstanding at that version
    again.
    """
    pods = echo.bound + echo.finished if echo else 0
    unseen = list(growths)
    while len(unseen) > 1 and unseen[0].replicas <= pods:
        oldest, second, *newer = unseen
        unseen = [Growth(second.version, oldest.replicas + second.replicas), *newer]
    return unseen


def _with_outstanding(
    reservations: tuple[Reservation, ...],
    sought: tuple[_Selector, ...],
    echoes: tuple[Echo | None, ...],
) -> BindingReservations:
    """Compute what is outstanding from reservations and echoes; the newest promise comes last."""
    if len(reservations) == 1:
        only = outstanding_of(reservations[0], echoes[0])
        parts = by_growth(reservations[0], only)
    else:
        parts = _outstanding(reservations, echoes)
    if not parts:
        return BindingReservations(reservations, sought, echoes)
    versions, outstanding = zip(*parts, strict=True)
    return BindingReservations(reservations, sought, echoes, outstanding, versions)


def _unreported(reservations: tuple[Reservation, ...]) -> BindingReservations:
    """Return the holding before any report."""
    return _with_outstanding(reservations, _selectors(reservations), (None,) * len(reservations))


def _selectors(reservations: Iterable[Reservation]) -> tuple[_Selector, ...]:
    return tuple([(reservation.component, reservation.shape) for reservation in reservations])


def restore_reservations(
    reservations: tuple[Reservation, ...], answered_version: int, echoes: tuple[Echo, ...]
) -> BindingReservations:
    """Return the holding of stored reservations, with the newest report's echoes of the binding."""
    if not answered_version:
        reservations = tuple(map(_without_adopted, reservations))
    bare = BindingReservations(reservations, _selectors(reservations), echoes)
    if bare.is_seen_by(echoes, answered_version):
        return bare
    return apply_report(_unreported(reservations), answered_version, echoes)


def _outstanding(
    reservations: Sequence[Reservation], echoes: Sequence[Echo | None]
) -> list[tuple[int, Outstanding]]:
    newest_places = {reservation.component: place for place, reservation in enumerate(reservations)}
    parts = []
    for place in newest_places.values():
        newest = reservations[place]
        older = [
            (reservation, echo)
            for reservation, echo in zip(reservations, echoes, strict=True)
            if reservation is not newest
            and reservation.component == newest.component
            and echo is not None
        ]
        parts += by_growth(newest, outstanding_of(newest, echoes[place], older))
    return sorted(parts, key=itemgetter(0))


def changes_interest(current: BindingReservations, later: BindingReservations) -> bool:
    """Tell whether agents need news: other shapes, or replicas that they plan nodes for."""
    return current.sought != later.sought or _planned(current) != _planned(later)


def _planned(holding: BindingReservations) -> list[tuple[int, NodeClaim | None]]:
    return [
        (reservation.replicas, reservation.requirements.node_claim)
        for reservation in holding.reservations
        if reservation.certificate is PromiseCertificate.PLANNED
    ]


def _newest_shapes(holding: BindingReservations) -> dict[str, Shape]:
    """Return the newest shape of each component."""
    return dict(holding.sought)


def _remembered(holding: BindingReservations, answered_version: int) -> dict[_Selector, _Echoed]:
    """Return the reservations whose pods agents still count, with their echoes.

    An older shape is forgotten once it has no pods and the pods of the newest shape show that none
    will come.
    """
    newest = {
        reservation.component: place for place, reservation in enumerate(holding.reservations)
    }
    remembered: dict[_Selector, _Echoed] = {}
    for place, reservation in enumerate(holding.reservations):
        newest_place = newest[reservation.component]
        latest = holding.reservations[newest_place]
        is_gone = not _pods(holding.echoes[place]) and (
            latest.replicas == 0 or _pods(holding.echoes[newest_place]) > 0
        )
        is_newest = place == newest_place
        if is_newest or latest.grown_version > answered_version or not is_gone:
            selector = holding.sought[place]
            remembered[selector] = reservation, selector, holding.echoes[place]
    return remembered


def _ordered(older: Collection[_Echoed], newest: Mapping[str, _Echoed]) -> BindingReservations:
    """Return the holding by component, in the order of ``newest``: older shapes, then the newest.

    At most OLDER_SHAPES_REMEMBERED older shapes of each component are kept.
    """
    by_component: dict[str, list[_Echoed]] = {name: [] for name in newest}
    for reservation, selector, echo in older:
        bare = reservation._replace(replicas=0, earlier=()) if reservation.replicas else reservation
        by_component.setdefault(reservation.component, []).append((bare, selector, echo))
    ordered: list[_Echoed] = []
    for component, shapes in by_component.items():
        last = [newest[component]] if component in newest else []
        ordered += [*shapes[-OLDER_SHAPES_REMEMBERED:], *last]
    return _with_outstanding(
        tuple(reservation for reservation, _, _ in ordered),
        tuple(selector for _, selector, _ in ordered),
        tuple(echo for _, _, echo in ordered),
    )


def _continues(held: Reservation, share: Share) -> bool:
    """Tell whether the share continues the reservation, so that it keeps its growths.

    A share that does not grow may be worth less, or may have been promised without proof of room.
    """
    if share.replicas > held.replicas:
        return is_repeated(held, share.requirements, share.certificate)
    return (
        share.certificate is not PromiseCertificate.STRICT
        or held.certificate is PromiseCertificate.STRICT
    ) and held.requirements.node_claim == share.requirements.node_claim


def _with_decision(reservation: Reservation, decision: str) -> tuple[str, ...]:
    decisions = reservation.decisions
    if decision in decisions:
        return decisions
    return (*decisions, decision)[-DECISIONS_REMEMBERED:]


def _without_adopted(reservation: Reservation) -> Reservation:
    """Drop the adopted count: after a report that answers it, the agent speaks for these pods."""
    return reservation._replace(adopted=0) if reservation.adopted else reservation


def apply_report(
    holding: BindingReservations, interest_version: int, reported: Sequence[Echo]
) -> BindingReservations:
    """Return the holding after a report that has the echoes ``reported`` of the binding."""
    has_adopted = any(reservation.adopted for reservation in holding.reservations)
    if not reported and not any(holding.echoes) and not has_adopted:
        return holding
    reservations, echoes = [], []
    by_selector = {(echo.component, echo.shape): echo for echo in reported}
    for reservation, selector in zip(holding.reservations, holding.sought, strict=True):
        is_answered = reservation.interest_version <= interest_version
        echo = by_selector.get(selector) if is_answered else None
        seen = _without_adopted(reservation) if is_answered else reservation
        if echo is not None and echo.finished > seen.finished:
            seen = seen._replace(finished=echo.finished)
        reservations.append(seen)
        echoes.append(echo)
    return _with_outstanding(tuple(reservations), holding.sought, tuple(echoes))


def _pods(echo: Echo | None) -> int:
    return echo.bound + echo.unbound if echo else 0
