"""What one binding holds in one cluster, and what the newest report echoes of it.

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

# Pods carry the decision they were made by; those of decisions longer ago are taken for newer.
DECISIONS_REMEMBERED: Final = 16
# A workload that changes its requests again and again, and never runs, must not fill the ledger.
OLDER_SHAPES_REMEMBERED: Final = 8
# Nor one that grows again and again: of more, the two oldest are packed as one from then on.
MAX_EARLIER_GROWTHS: Final = 8

_Sought: TypeAlias = tuple[str, Shape]
_Known: TypeAlias = tuple[Reservation, _Sought, Echo | None]


class Stake(NamedTuple):
    """What one binding holds in one cluster.

    ``sought`` and ``echoes`` are those of ``reservations``, in their order: what pods of each are
    told apart by, and what the newest report counts of them. Of each component the newest shape
    stands last. What is ``outstanding`` is packed in the order of ``versions``, at which each part
    was promised.
    """

    reservations: tuple[Reservation, ...]
    sought: tuple[_Sought, ...]
    echoes: tuple[Echo | None, ...]
    outstanding: tuple[Outstanding, ...] = ()
    versions: tuple[int, ...] = ()

    def is_seen_by(self, echoes: tuple[Echo, ...], interest_version: int) -> bool:
        """Whether there is one shape, and its pods in a report stand for all that is reserved: so
        it is mostly, and nothing is to be worked out then.
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


class FirstStakes:
    """Stakes of a binding in clusters where it had none: what is alike in them is made once."""

    def __init__(self, binding: str, decision: str) -> None:
        self.binding = binding
        self.decision = decision
        self._decisions = (decision,)
        # By the identity of the shares, which are kept for that.
        self._alike: dict[int, tuple[tuple[Share, ...], Stake]] = {}

    def of(
        self,
        cluster: str,
        shares: tuple[Share, ...],
        version: int,
        adopted: Mapping[str, int] | None = None,
    ) -> Stake:
        """The stake in a cluster, whose ledger has it at that version."""
        ran = adopted or {}
        there = [
            Reservation(
                self.binding,
                cluster,
                each.requirements,
                each.replicas,
                self._decisions,
                each.component,
                each.certificate,
                version,
                ran.get(each.component, 0),
                0,
                version,
            )
            for each in shares
        ]
        if adopted:
            return _unseen(tuple(there))
        known = self._alike.get(id(shares))
        if known is None:
            known = self._alike[id(shares)] = shares, _unseen(tuple(there))
        _, alike = known
        outstanding = alike.outstanding
        versions = (version,) * len(outstanding)
        return Stake(tuple(there), alike.sought, alike.echoes, outstanding, versions)


def next_stake(
    before: Stake,
    decision: str,
    shares: Sequence[Share],
    adopted: Mapping[str, int],
    version: int,
    answered_version: int,
) -> Stake:
    """The stake of a binding that had one, of which the newest report answers so much."""
    if len(shares) == len(before.reservations) == 1:
        share, known, asked = shares[0], before.reservations[0], before.sought
        if asked == (("", request_shape(share.requirements.request)),) and not share.component:
            # So it is mostly, and there is nothing older to remember.
            same = _kept_on(known, share, decision, version, before.echoes[0], stays=True)
            return _held((same,), asked, before.echoes)
    older = _remembered(before, answered_version)
    newest = _newest_places(before)
    given: dict[str, _Known] = {}
    for share in shares:
        shape = request_shape(share.requirements.request)
        sought = share.component, shape
        held = older.pop(sought, None)
        if held is not None:
            stays = newest[share.component] == shape
            reservation = _kept_on(held[0], share, decision, version, held[2], stays=stays)
        else:
            reservation = Reservation(
                binding=before.reservations[0].binding,
                cluster=before.reservations[0].cluster,
                component=share.component,
                requirements=share.requirements,
                replicas=share.replicas,
                decisions=(decision,),
                certificate=share.certificate,
                interest_version=version,
                adopted=adopted.get(share.component, 0),
                grown_version=version,
            )
        given[share.component] = reservation, sought, held[2] if held else None
    return _ordered(older.values(), _sets_anew(given, version))


def _sets_anew(parts: Mapping[str, _Known], version: int) -> Mapping[str, _Known]:
    """Promise a set anew as a whole where any of its components is: so it is packed."""
    is_more = any(
        reservation.replicas and reservation.grown_version == version
        for reservation, _, _ in parts.values()
    )
    if not is_more or not any(parts):
        return parts
    return {
        component: (reservation._replace(grown_version=version, earlier=()), sought, echo)
        for component, (reservation, sought, echo) in parts.items()
    }


def _kept_on(
    held: Reservation,
    share: Share,
    decision: str,
    version: int,
    echo: Echo | None,
    *,
    stays: bool,
) -> Reservation:
    """What becomes of a reservation; it ``stays`` in its place where its shape was the newest, and
    where no more is promised.
    """
    grown, earlier = _grown(held, share, version, echo) if stays else (version, ())
    # By name it would take twice as long, for thousands of clusters.
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

    More of the same is promised in addition; less is taken from what was promised last.
    """
    if not _is_alike(held, share):
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
    """Return the growths, where those that pods stand for are one with the oldest that needs room.

    What is outstanding stays as it is. Pods that go away are outstanding at that version again.
    """
    pods = echo.bound + echo.finished if echo else 0
    unseen = list(growths)
    while len(unseen) > 1 and unseen[0].replicas <= pods:
        oldest, second, *newer = unseen
        unseen = [Growth(second.version, oldest.replicas + second.replicas), *newer]
    return unseen


def _held(
    reservations: tuple[Reservation, ...],
    sought: tuple[_Sought, ...],
    echoes: tuple[Echo | None, ...],
) -> Stake:
    """With what is outstanding by reservations and echoes: what was promised last at the end."""
    if len(reservations) == 1:
        found = outstanding_of(reservations[0], echoes[0])
        parts = by_growth(reservations[0], found)
    else:
        parts = _outstanding(reservations, echoes)
    if not parts:
        return Stake(reservations, sought, echoes)
    versions, outstanding = zip(*parts, strict=True)
    return Stake(reservations, sought, echoes, outstanding, versions)


def _unseen(reservations: tuple[Reservation, ...]) -> Stake:
    """Before any report."""
    return _held(reservations, _sought(reservations), (None,) * len(reservations))


def _sought(reservations: Iterable[Reservation]) -> tuple[_Sought, ...]:
    return tuple([(each.component, each.shape) for each in reservations])


def restored_stake(
    reservations: tuple[Reservation, ...], answered_version: int, found: tuple[Echo, ...]
) -> Stake:
    """What is stored of a binding, and what the newest report echoes of it."""
    if not answered_version:
        reservations = tuple(map(_seen, reservations))
    bare = Stake(reservations, _sought(reservations), found)
    if bare.is_seen_by(found, answered_version):
        return bare
    return answered_stake(_unseen(reservations), answered_version, found)


def _outstanding(
    reservations: Sequence[Reservation], echoes: Sequence[Echo | None]
) -> list[tuple[int, Outstanding]]:
    places = {each.component: place for place, each in enumerate(reservations)}
    parts = []
    for place in places.values():
        newest = reservations[place]
        older = [
            (each, echo)
            for each, echo in zip(reservations, echoes, strict=True)
            if each is not newest and each.component == newest.component and echo is not None
        ]
        parts += by_growth(newest, outstanding_of(newest, echoes[place], older))
    return sorted(parts, key=itemgetter(0))


def is_news(before: Stake, held: Stake) -> bool:
    """Whether agents are to be told: of shapes, or of replicas that they plan nodes for."""
    return before.sought != held.sought or _planned(before) != _planned(held)


def _planned(held: Stake) -> list[tuple[int, NodeClaim | None]]:
    return [
        (each.replicas, each.requirements.node_claim)
        for each in held.reservations
        if each.certificate is PromiseCertificate.PLANNED
    ]


def _newest_places(held: Stake) -> dict[str, Shape]:
    """The newest shape of each component."""
    return dict(held.sought)


def _remembered(held: Stake, answered_version: int) -> dict[_Sought, _Known]:
    """What is still to be looked for, with its echo.

    An older shape is forgotten when no pod has it and, by the pods of the newest, none will.
    """
    newest = {each.component: place for place, each in enumerate(held.reservations)}
    left: dict[_Sought, _Known] = {}
    for place, each in enumerate(held.reservations):
        last = newest[each.component]
        latest = held.reservations[last]
        is_gone = not _pods(held.echoes[place]) and (
            latest.replicas == 0 or _pods(held.echoes[last]) > 0
        )
        if place == last or latest.grown_version > answered_version or not is_gone:
            left[held.sought[place]] = each, held.sought[place], held.echoes[place]
    return left


def _ordered(older: Collection[_Known], given: Mapping[str, _Known]) -> Stake:
    """Component by component in the order given; of each as many older ones as are remembered."""
    by_component: dict[str, list[_Known]] = {name: [] for name in given}
    for each, sought, echo in older:
        bare = each._replace(replicas=0, earlier=()) if each.replicas else each
        by_component.setdefault(each.component, []).append((bare, sought, echo))
    kept: list[_Known] = []
    for component, found in by_component.items():
        newest = [given[component]] if component in given else []
        kept += [*found[-OLDER_SHAPES_REMEMBERED:], *newest]
    return _held(
        tuple(each for each, _, _ in kept),
        tuple(sought for _, sought, _ in kept),
        tuple(echo for _, _, echo in kept),
    )


def _is_alike(held: Reservation, share: Share) -> bool:
    """Whether what was promised is a part of the share.

    What does not grow may be worth less, or have been promised where nothing showed room.
    """
    if share.replicas > held.replicas:
        return is_repeated(held, share.requirements, share.certificate)
    return (
        share.certificate is not PromiseCertificate.STRICT
        or held.certificate is PromiseCertificate.STRICT
    ) and held.requirements.node_claim == share.requirements.node_claim


def _with_decision(known: Reservation, decision: str) -> tuple[str, ...]:
    decisions = known.decisions
    if decision in decisions:
        return decisions
    return (*decisions, decision)[-DECISIONS_REMEMBERED:]


def _seen(reservation: Reservation) -> Reservation:
    """As after a report that answers it: the agent speaks for what was adopted."""
    return reservation._replace(adopted=0) if reservation.adopted else reservation


def answered_stake(held: Stake, interest_version: int, found: Sequence[Echo]) -> Stake:
    """What a binding holds after a report, in which ``found`` is of it."""
    if not found and not any(held.echoes) and not any(each.adopted for each in held.reservations):
        return held
    reservations, echoes = [], []
    by_sought = {(echo.component, echo.shape): echo for echo in found}
    for each, sought in zip(held.reservations, held.sought, strict=True):
        is_asked = each.interest_version <= interest_version
        echo = by_sought.get(sought) if is_asked else None
        told = _seen(each) if is_asked else each
        if echo is not None and echo.finished > told.finished:
            told = told._replace(finished=echo.finished)
        reservations.append(told)
        echoes.append(echo)
    return _held(tuple(reservations), held.sought, tuple(echoes))


def _pods(echo: Echo | None) -> int:
    return echo.bound + echo.unbound if echo else 0
