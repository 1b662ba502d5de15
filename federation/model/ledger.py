"""The ledger: every reservation of every cluster, and what the newest reports echo of them.

Pure and immutable: what happens gives a new ledger. Must not check capacity, nor read a clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

from federation.model.reservations import (
    Outstanding,
    PromiseCertificate,
    Reservation,
    Share,
    outstanding_of,
)
from federation.model.shapes import Echo, Shape, request_shape
from federation.model.sharing import SharingMap
from federation.model.workload import NodeClaim

# Pods carry the decision they were made by; those of decisions longer ago are taken for newer.
DECISIONS_REMEMBERED: Final = 16
# A workload that changes its requests again and again, and never runs, must not fill the ledger.
OLDER_SHAPES_REMEMBERED: Final = 8

_Sought: TypeAlias = tuple[str, Shape]
_Known: TypeAlias = tuple[Reservation, _Sought, Echo | None]


class Stake(NamedTuple):
    """What one binding holds in one cluster: the first three are alike in their order.

    ``sought`` is what pods are told apart by.

    Of each component the newest shape stands last. ``grown`` is the version at which the binding
    last got more: what is outstanding is packed in that order.
    """

    reservations: tuple[Reservation, ...]
    sought: tuple[_Sought, ...]
    echoes: tuple[Echo | None, ...]
    outstanding: tuple[Outstanding, ...] = ()
    grown: int = 0

    def is_seen_by(self, echoes: tuple[Echo, ...], interest_version: int) -> bool:
        """Whether there is one shape, and pods of it stand for all of it: so it is mostly."""
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


_Bindings: TypeAlias = SharingMap[Stake]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLedger:
    """The reservations of one cluster by binding, and what its newest report echoes of them.

    ``version`` grows by one with everything that happens, so that it names a state of the ledger.
    At ``interest_version`` the agent last got something else to look for; the newest report
    answers ``answered_version``, 0 when the agent had not been told anything.
    """

    cluster: str
    version: int = 0
    interest_version: int = 0
    answered_version: int = 0
    _held: _Bindings = field(default_factory=SharingMap, repr=False)
    # Those with something outstanding: few, as reports take over what they see.
    _open: _Bindings = field(default_factory=SharingMap, repr=False)

    @classmethod
    def restored(
        cls,
        cluster: str,
        version: int,
        reservations: Mapping[str, Sequence[Reservation]],
        answered_version: int = 0,
        echoes: Iterable[Echo] = (),
    ) -> ClusterLedger:
        """From what is stored: reservations of the cluster by binding, and its newest report.

        Equal to the ledger that lived through everything, but where it cannot know: when the
        report answers nothing an earlier one may have, so what was adopted counts as never seen;
        pods that finished and were gone before that was stored are outstanding again; and agents
        are to be told everything anew.
        """
        seen = _by_binding(tuple(echoes))
        held = {
            binding: _restored(tuple(given), answered_version, seen.get(binding, ()))
            for binding, given in reservations.items()
        }
        waiting = {binding: stake for binding, stake in held.items() if stake.outstanding}
        return cls(
            cluster=cluster,
            version=version,
            interest_version=version,
            answered_version=answered_version,
            _held=SharingMap.of(held),
            _open=SharingMap.of(waiting),
        )

    def decided(
        self,
        binding: str,
        decision: str,
        shares: Sequence[Share],
        adopted: Mapping[str, int] | None = None,
    ) -> ClusterLedger:
        """With what a decision gives the binding here, in place of what it had.

        ``adopted`` says by component how many replicas ran before the binding was known. What is
        echoed of a shape stays; a shape that is no longer the newest is only looked for, until
        the newest is seen instead.
        """
        work = LedgerInWork(self)
        work.put(binding, work.stake(binding, decision, shares, adopted))
        return work.ledger

    def released(self, binding: str) -> ClusterLedger:
        """Without anything of the binding: its pods that are still there are only in reports."""
        work = LedgerInWork(self)
        work.release(binding)
        return work.ledger

    def reported(self, interest_version: int, echoes: Iterable[Echo]) -> ClusterLedger:
        """With the echoes of a newer report, in place of all earlier ones.

        A reservation without an echo has no pods in the report's capacity: what the agent did not
        look for is taken as not there, so that nothing is missed, and what it says of an earlier
        binding of that name is not believed. Pods that finished stay echoed.
        """
        seen = _by_binding(tuple(echoes))
        opened: dict[str, Stake] = {}

        def answered(binding: str, held: Stake) -> Stake:
            found = seen.get(binding, ())
            if held.is_seen_by(found, interest_version):
                return Stake(held.reservations, held.sought, found, (), held.grown)
            made = _answered(held, interest_version, found)
            if made.outstanding:
                opened[binding] = made
            return made

        held = self._held.with_values(answered)
        return ClusterLedger(
            cluster=self.cluster,
            version=self.version + 1,
            interest_version=self.interest_version,
            answered_version=interest_version,
            _held=held,
            _open=SharingMap.of(opened),
        )

    def passed(self) -> ClusterLedger:
        """The next version, at which nothing happened that this ledger could know of."""
        return replace(self, version=self.version + 1)

    def bindings(self) -> list[str]:
        """Those that hold something, in order."""
        return sorted(self._held)

    def with_stakes(
        self, version: int, interest_version: int, stakes: Mapping[str, Stake | None]
    ) -> ClusterLedger:
        """At a later version, at which bindings hold this, or nothing any more."""
        held = {key: stake for key, stake in stakes.items() if stake}
        waiting = {key: stake for key, stake in held.items() if stake.outstanding}
        return ClusterLedger(
            cluster=self.cluster,
            version=version,
            interest_version=interest_version,
            answered_version=self.answered_version,
            _held=self._held.with_changes(held, stakes.keys() - held.keys()),
            _open=self._open.with_changes(waiting, stakes.keys() - waiting.keys()),
        )

    def stake_of(self, binding: str) -> Stake | None:
        """What a binding holds and what is echoed of it; None where it holds nothing."""
        return self._held.get(binding)

    def of_binding(self, binding: str) -> tuple[Reservation, ...]:
        """What a binding holds: of each component the older shapes, then the newest."""
        held = self._held.get(binding)
        return held.reservations if held else ()

    def newest(self, binding: str) -> list[Reservation]:
        """The reservation of the newest shape of each component."""
        return list({each.component: each for each in self.of_binding(binding)}.values())

    def echo_of(self, reservation: Reservation) -> Echo | None:
        """What the newest report counts of one of the reservations; None where it has no pods."""
        held = self._held.get(reservation.binding)
        if held is None or reservation not in held.reservations:
            return None
        return held.echoes[held.reservations.index(reservation)]

    @property
    def is_open(self) -> bool:
        """Whether anything is outstanding."""
        return bool(self._open)

    def outstanding(self) -> tuple[Outstanding, ...]:
        """What every binding has outstanding here, what last got more at the end."""
        if not self._open:
            return ()
        waiting = sorted(self._open.items(), key=lambda item: (item[1].grown, item[0]))
        return tuple(each for _, held in waiting for each in held.outstanding)

    def outstanding_of(self, binding: str) -> tuple[Outstanding, ...]:
        """What one binding has outstanding here, by component; what is echoed as a whole is not."""
        held = self._open.get(binding)
        return held.outstanding if held else ()


class LedgerInWork:
    """A ledger that one change after the other is made to: those of a batch cost one copy.

    Belongs to one thread; what it began with stays as it was. It may be asked for nothing but
    what bindings hold.
    """

    __slots__ = ("_base", "_changed", "_interest_version", "version")

    def __init__(self, base: ClusterLedger) -> None:
        self.version = base.version
        self._base = base
        self._interest_version = base.interest_version
        self._changed: dict[str, Stake | None] = {}

    @property
    def ledger(self) -> ClusterLedger:
        """What has become of it."""
        return self._base.with_stakes(self.version, self._interest_version, self._changed)

    def stake_of(self, binding: str) -> Stake | None:
        """What a binding holds, None where nothing."""
        if binding in self._changed:
            return self._changed[binding]
        return self._base.stake_of(binding)

    def stake(
        self,
        binding: str,
        decision: str,
        shares: Sequence[Share],
        adopted: Mapping[str, int] | None = None,
    ) -> Stake:
        """What ``ClusterLedger.decided`` gives a binding; it has it once that is put."""
        before, version = self.stake_of(binding), self.version + 1
        cluster, adopted = self._base.cluster, adopted or {}
        if before is None:
            return _first(binding, cluster, decision, shares, adopted, version)
        older = _remembered(before, self._base.answered_version)
        newest = _newest_places(before)
        given: dict[str, _Known] = {}
        for share in shares:
            shape = request_shape(share.requirements.request)
            sought = share.component, shape
            known, _, echo = older.pop(sought, (None, sought, None))
            stays = known is not None and newest[share.component] == shape
            made = Reservation(
                binding=binding,
                cluster=cluster,
                component=share.component,
                requirements=share.requirements,
                replicas=share.replicas,
                decisions=_with_decision(known, decision),
                certificate=share.certificate,
                interest_version=known.interest_version if known else version,
                adopted=known.adopted if known else adopted.get(share.component, 0),
                finished=known.finished if known else 0,
                grown_version=known.grown_version
                if known and stays and _covers(known, share)
                else version,
            )
            given[share.component] = made, sought, echo
        return _ordered(older.values(), given)

    def put(self, binding: str, stake: Stake) -> None:
        """Give a binding a stake that was made at this version."""
        before = self.stake_of(binding)
        self.version += 1
        if before is None or _is_news(before, stake):
            self._interest_version = self.version
        self._changed[binding] = stake

    def release(self, binding: str) -> None:
        """Take all from a binding."""
        self.version += 1
        if self.stake_of(binding) is not None:
            self._interest_version = self.version
        self._changed[binding] = None


def _first(
    binding: str,
    cluster: str,
    decision: str,
    shares: Sequence[Share],
    adopted: Mapping[str, int],
    version: int,
) -> Stake:
    """The stake of a binding that had none."""
    reservations = tuple(
        Reservation(
            binding,
            cluster,
            each.requirements,
            each.replicas,
            (decision,),
            each.component,
            each.certificate,
            version,
            adopted.get(each.component, 0),
            0,
            version,
        )
        for each in shares
    )
    return _unseen(reservations)


def _held(
    reservations: tuple[Reservation, ...],
    sought: tuple[_Sought, ...],
    echoes: tuple[Echo | None, ...],
) -> Stake:
    """With what is outstanding by reservations and echoes: what got more last at the end."""
    if len(reservations) == 1:
        found = outstanding_of(reservations[0], echoes[0])
        outstanding = (found,) if found.in_cells else ()
        return Stake(reservations, sought, echoes, outstanding, reservations[0].grown_version)
    every = _outstanding(reservations, echoes)
    grown = max((each.grown_version for each in reservations), default=0)
    return Stake(reservations, sought, echoes, tuple(e for e in every if e.in_cells), grown)


def _unseen(reservations: tuple[Reservation, ...]) -> Stake:
    """Before any report."""
    return _held(reservations, _sought(reservations), (None,) * len(reservations))


def _sought(reservations: Iterable[Reservation]) -> tuple[_Sought, ...]:
    return tuple([(each.component, each.shape) for each in reservations])


def _restored(
    reservations: tuple[Reservation, ...], answered_version: int, found: tuple[Echo, ...]
) -> Stake:
    """What is stored of a binding, and what the newest report echoes of it."""
    if not answered_version:
        reservations = tuple(map(_seen, reservations))
    bare = Stake(reservations, _sought(reservations), found, (), reservations[0].grown_version)
    if bare.is_seen_by(found, answered_version):
        return bare
    return _answered(_unseen(reservations), answered_version, found)


def _outstanding(
    reservations: Sequence[Reservation], echoes: Sequence[Echo | None]
) -> list[Outstanding]:
    places = {each.component: place for place, each in enumerate(reservations)}
    order = sorted(places.values(), key=lambda place: reservations[place].grown_version)
    found = []
    for place in order:
        newest = reservations[place]
        older = [
            (each, echo)
            for each, echo in zip(reservations, echoes, strict=True)
            if each is not newest and each.component == newest.component and echo is not None
        ]
        found.append(outstanding_of(newest, echoes[place], older))
    return found


def _is_news(before: Stake, held: Stake) -> bool:
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
        bare = each._replace(replicas=0) if each.replicas else each
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


def _covers(known: Reservation, share: Share) -> bool:
    """Whether what was promised is no less than the share."""
    return (
        known.replicas >= share.replicas
        and (
            share.certificate is not PromiseCertificate.STRICT
            or known.certificate is PromiseCertificate.STRICT
        )
        and known.requirements.node_claim == share.requirements.node_claim
    )


def _with_decision(known: Reservation | None, decision: str) -> tuple[str, ...]:
    decisions = known.decisions if known else ()
    if decision in decisions:
        return decisions
    return (*decisions, decision)[-DECISIONS_REMEMBERED:]


def _seen(reservation: Reservation) -> Reservation:
    """As after a report that answers it: the agent speaks for what was adopted."""
    return reservation._replace(adopted=0) if reservation.adopted else reservation


def _by_binding(echoes: Sequence[Echo]) -> Mapping[str, tuple[Echo, ...]]:
    seen = {echo.binding: (echo,) for echo in echoes}
    if len(seen) == len(echoes):
        return seen
    every: defaultdict[str, tuple[Echo, ...]] = defaultdict(tuple)
    for echo in echoes:
        every[echo.binding] += (echo,)
    return every


def _answered(held: Stake, interest_version: int, found: Sequence[Echo]) -> Stake:
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
