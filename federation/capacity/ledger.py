"""The ledger of a cluster: its reservations by binding, and the newest report's echoes of them.

Pure and immutable: each change gives a new ledger. Must not check capacity, nor read a clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from federation.capacity.holdings import (
    BindingReservations,
    NewReservations,
    apply_report,
    changes_interest,
    reserve_again,
    restore_reservations,
)
from federation.model.reservations import Outstanding, PackingOrder, Reservation, Share
from federation.model.shapes import Echo

ValueT = TypeVar("ValueT")

# A change copies one part and the tuple of all parts: about equal work at 10,000 keys.
_KEYS_A_PART: Final = 64
_GROWTH: Final = 4


class SharingMap(Mapping[str, ValueT], Generic[ValueT]):
    """A persistent map in parts by key hash: a change copies one part, and shares the others."""

    __slots__ = ("_parts", "_size")

    def __init__(self, parts: tuple[dict[str, ValueT], ...] = ({},), size: int = 0) -> None:
        """Take the ``parts`` by hash of the keys; ``of`` makes them."""
        self._parts = parts
        self._size = size

    @classmethod
    def of(cls, items: Mapping[str, ValueT]) -> SharingMap[ValueT]:
        return cls(_parted(items.items(), _parts_for(len(items))), len(items))

    def __getitem__(self, key: str) -> ValueT:
        return self._parts[hash(key) % len(self._parts)][key]

    def get(  # type: ignore[override]  # takes no default of another type
        self, key: str, default: ValueT | None = None
    ) -> ValueT | None:
        return self._parts[hash(key) % len(self._parts)].get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._parts[hash(key) % len(self._parts)]

    def __iter__(self) -> Iterator[str]:
        for part in self._parts:
            yield from part

    def __len__(self) -> int:
        return self._size

    def with_changes(self, changes: Mapping[str, ValueT | None]) -> SharingMap[ValueT]:
        """Set these values, and drop the keys whose value is None."""
        parts, own = list(self._parts), set[int]()
        size, count = self._size, len(parts)
        for key, value in changes.items():
            place = hash(key) % count
            part = parts[place]
            if place not in own:
                own.add(place)
                part = parts[place] = part.copy()
            if value is not None:
                size += key not in part
                part[key] = value
            elif part.pop(key, None) is not None:
                size -= 1
        if size > _KEYS_A_PART * count:
            items = (item for part in parts for item in part.items())
            return SharingMap(_parted(items, _parts_for(size)), size)
        return SharingMap(tuple(parts), size)

    def with_values(self, change: Callable[[str, ValueT], ValueT]) -> SharingMap[ValueT]:
        """Return the same keys with new values: ``change`` of each key and its value."""
        parts = tuple(
            {key: change(key, value) for key, value in part.items()} for part in self._parts
        )
        return SharingMap(parts, self._size)


def _parts_for(size: int) -> int:
    parts = 1
    while size > _KEYS_A_PART * parts:
        parts *= _GROWTH
    return parts


def _parted(items: Iterable[tuple[str, ValueT]], count: int) -> tuple[dict[str, ValueT], ...]:
    parts: tuple[dict[str, ValueT], ...] = tuple({} for _ in range(count))
    for key, value in items:
        parts[hash(key) % count][key] = value
    return parts


_Bindings: TypeAlias = SharingMap[BindingReservations]

# Bounds the memory of a ledger that nobody reads, as of a cluster that is silent.
_MAX_CHANGES: Final = 1_000


class _OpenReservations(NamedTuple):
    """Bindings with outstanding promises, and these promises in the order in which they were made.

    ``versions`` are parallel to ``in_order``: the ledger versions that made them, ascending.
    """

    by_binding: Mapping[str, BindingReservations]
    in_order: tuple[Outstanding, ...]
    versions: tuple[int, ...]

    @classmethod
    def of(cls, by_binding: Mapping[str, BindingReservations]) -> _OpenReservations:
        return cls(by_binding, *_by_growth(by_binding))

    @property
    def newest(self) -> int:
        """The version of the last promise, 0 without any."""
        return self.versions[-1] if self.versions else 0

    def with_changes(self, changes: Mapping[str, BindingReservations | None]) -> _OpenReservations:
        opened = {
            key: holding for key, holding in changes.items() if holding and holding.outstanding
        }
        by_binding = {**self.by_binding, **opened}
        if changes.keys().isdisjoint(self.by_binding) and all(
            holding.versions[0] > self.newest for holding in opened.values()
        ):
            in_order, versions = _by_growth(opened)
            return _OpenReservations(by_binding, self.in_order + in_order, self.versions + versions)
        for key in changes.keys() - opened.keys():
            by_binding.pop(key, None)
        return _OpenReservations.of(by_binding)


def _by_growth(
    holdings: Mapping[str, BindingReservations],
) -> tuple[tuple[Outstanding, ...], tuple[int, ...]]:
    """Return all outstanding promises, the newest last, and the versions that made them."""
    ordered = sorted(
        (version, key, place, part)
        for key, holding in holdings.items()
        for place, (version, part) in enumerate(
            zip(holding.versions, holding.outstanding, strict=True)
        )
    )
    return tuple([part for _, _, _, part in ordered]), tuple([version for version, *_ in ordered])


_NONE: Final = _OpenReservations({}, (), ())


class _Open:
    """The holdings with outstanding promises: few, because reports take over what has pods.

    Kept as an earlier state and changes, which are merged on the first read or once they are many:
    decisions do not read them. Safe in any thread.
    """

    __slots__ = ("state", "times_changed")

    def __init__(
        self, earlier: _Open | None, changes: Mapping[str, BindingReservations | None]
    ) -> None:
        self.state: _OpenReservations | _Changed = _Changed(earlier, changes)
        self.times_changed: int = earlier.times_changed + 1 if earlier is not None else 0
        if self.times_changed > _MAX_CHANGES:
            self.merged()

    def __bool__(self) -> bool:
        state = self.state
        if isinstance(state, _Changed) and any(
            holding and holding.outstanding for holding in state.changes.values()
        ):
            return True
        return bool(self.merged().by_binding)

    def merged(self) -> _OpenReservations:
        """Merge the changes into the state."""
        state, later = self.state, list[Mapping[str, BindingReservations | None]]()
        while isinstance(state, _Changed):
            later.append(state.changes)
            state = state.earlier.state if state.earlier is not None else _NONE
        if later:
            changes = dict[str, BindingReservations | None]()
            for newer in reversed(later):
                changes |= newer
            state = self.state = state.with_changes(changes)
            self.times_changed = 0
        return state


class _Changed(NamedTuple):
    """An earlier state, and the holdings of bindings that changed since."""

    earlier: _Open | None
    changes: Mapping[str, BindingReservations | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLedger:
    """The reservations of one cluster by binding, and the newest report's echoes of them.

    ``version`` grows by one with each event, so that it names a state of the ledger. At
    ``interest_version`` the selectors that the agent counts pods by last changed. The newest
    report made ``reported_version``, and answers ``answered_version``, 0 if the agent had no
    selectors yet.
    """

    cluster: str
    version: int = 0
    interest_version: int = 0
    answered_version: int = 0
    reported_version: int = 0
    _held: _Bindings = field(default_factory=SharingMap, repr=False)
    _open: _Open = field(default_factory=lambda: _Open(None, {}), repr=False, compare=False)

    @classmethod
    def restored(
        cls,
        cluster: str,
        version: int,
        reservations: Mapping[str, Sequence[Reservation]],
        answered_version: int = 0,
        echoes: Iterable[Echo] = (),
        reported_version: int = 0,
    ) -> ClusterLedger:
        """Restore a ledger from its stored reservations by binding and its newest report.

        Without a ``reported_version`` the report is taken to be newer than all of them.

        It equals the live ledger but for three things that are not stored. If the report answers
        no version, adopted replicas count as never seen, although an earlier report may have seen
        them. Pods that finished and were deleted before that was stored are outstanding again.
        Agents get all selectors anew.
        """
        seen = _by_binding(tuple(echoes))
        held = {
            binding: restore_reservations(tuple(stored), answered_version, seen.get(binding, ()))
            for binding, stored in reservations.items()
        }
        waiting = {binding: holding for binding, holding in held.items() if holding.outstanding}
        return cls(
            cluster=cluster,
            version=version,
            interest_version=version,
            answered_version=answered_version,
            reported_version=reported_version or version,
            _held=SharingMap.of(held),
            _open=_Open(None, waiting),
        )

    def decided(
        self,
        binding: str,
        decision: str,
        shares: Sequence[Share],
        adopted: Mapping[str, int] | None = None,
    ) -> ClusterLedger:
        """Record the shares that a decision gives a binding in this cluster, replacing older ones.

        ``adopted`` is, by component, the number of replicas that ran before the binding was
        created. Echoes of a shape stay. A shape that is no longer the newest is only counted,
        until pods of the newest shape are seen.
        """
        work, current = LedgerDraft(self), self.reservations_of(binding)
        holding = work.draft(NewReservations(binding, decision), current, tuple(shares), adopted)
        work.put(binding, current, holding)
        return work.ledger

    def released(self, binding: str) -> ClusterLedger:
        """Remove the binding: from now on its remaining pods are only in reports."""
        work = LedgerDraft(self)
        work.release(binding)
        return work.ledger

    def reported(self, interest_version: int, echoes: Iterable[Echo]) -> ClusterLedger:
        """Replace all echoes by those of a newer report.

        A reservation without an echo has no pods in the report's capacity. Pods that the agent
        did not look for count as absent, so that none is missed. Echoes of an earlier binding of
        the same name are ignored. Finished pods stay echoed.
        """
        seen = _by_binding(tuple(echoes))
        opened: dict[str, BindingReservations] = {}

        def answered(binding: str, held: BindingReservations) -> BindingReservations:
            echoes = seen.get(binding, ())
            if held.is_seen_by(echoes, interest_version):
                return BindingReservations(held.reservations, held.sought, echoes)
            holding = apply_report(held, interest_version, echoes)
            if holding.outstanding:
                opened[binding] = holding
            return holding

        held = self._held.with_values(answered)
        return ClusterLedger(
            cluster=self.cluster,
            version=self.version + 1,
            interest_version=self.interest_version,
            answered_version=interest_version,
            reported_version=self.version + 1,
            _held=held,
            _open=_Open(None, opened),
        )

    def passed(self) -> ClusterLedger:
        """Return the ledger at the next version, which changes nothing in it."""
        return replace(self, version=self.version + 1)

    def bindings(self) -> list[str]:
        """Return the keys of all bindings with a holding, in order."""
        return sorted(self._held)

    def with_reservations(
        self,
        version: int,
        interest_version: int,
        holdings: Mapping[str, BindingReservations | None],
    ) -> ClusterLedger:
        """Return the ledger at a later version with these holdings; None removes a binding."""
        return ClusterLedger(
            cluster=self.cluster,
            version=version,
            interest_version=interest_version,
            answered_version=self.answered_version,
            reported_version=self.reported_version,
            _held=self._held.with_changes(holdings),
            _open=_Open(self._open, holdings),
        )

    def reservations_of(self, binding: str) -> BindingReservations | None:
        """Return the holding of a binding, None where it has none."""
        return self._held.get(binding)

    def of_binding(self, binding: str) -> tuple[Reservation, ...]:
        """Return a binding's reservations: for each component the older shapes, then the newest."""
        held = self._held.get(binding)
        return held.reservations if held else ()

    def newest(self, binding: str) -> list[Reservation]:
        """Return the reservation of the newest shape of each component."""
        newest = {reservation.component: reservation for reservation in self.of_binding(binding)}
        return list(newest.values())

    def echo_of(self, reservation: Reservation) -> Echo | None:
        """Return the newest report's counts for a reservation, None where it has no pods."""
        held = self._held.get(reservation.binding)
        if held is None or reservation not in held.reservations:
            return None
        return held.echoes[held.reservations.index(reservation)]

    def seen_of(self, binding: str) -> int:
        """Count the pods of a binding in the newest report, of all shapes."""
        held = self._held.get(binding)
        return sum(echo.bound + echo.unbound for echo in held.echoes if echo) if held else 0

    @property
    def is_open(self) -> bool:
        """Tell whether any promise is outstanding."""
        return bool(self._open)

    def outstanding(self) -> tuple[Outstanding, ...]:
        """Return all outstanding promises of the cluster, in the order in which they were made."""
        return self._open.merged().in_order

    def order(self) -> PackingOrder:
        """Return all outstanding promises of the cluster, in the order in which they are packed."""
        current = self._open.merged()
        grouped = bisect_right(current.versions, self.reported_version)
        return PackingOrder(current.in_order, grouped)

    def outstanding_of(self, binding: str) -> tuple[Outstanding, ...]:
        """Return the outstanding promises of one binding, by version and component.

        A promise that is echoed in full is not outstanding.
        """
        held = self._held.get(binding)
        return held.outstanding if held else ()


class LedgerDraft:
    """A draft of a ledger that takes several changes: a batch of them costs one copy.

    Belongs to one thread; the base ledger stays unchanged. Only ``reservations_of`` reads changes.
    """

    __slots__ = ("_base", "_changed", "_interest_version", "version")

    def __init__(self, base: ClusterLedger) -> None:
        self.version = base.version
        self._base = base
        self._interest_version = base.interest_version
        self._changed: dict[str, BindingReservations | None] = {}

    def copy(self) -> LedgerDraft:
        """Return an independent copy."""
        copy = LedgerDraft(self._base)
        copy.version, copy._interest_version = self.version, self._interest_version
        copy._changed = self._changed.copy()
        return copy

    @property
    def ledger(self) -> ClusterLedger:
        """The ledger with all changes."""
        return self._base.with_reservations(
            self.version, self._interest_version, self._changed.copy()
        )

    def reservations_of(self, binding: str) -> BindingReservations | None:
        """Return the holding of a binding, None where it has none."""
        if binding in self._changed:
            return self._changed[binding]
        return self._base.reservations_of(binding)

    def draft(
        self,
        first: NewReservations,
        current: BindingReservations | None,
        shares: tuple[Share, ...],
        adopted: Mapping[str, int] | None = None,
    ) -> BindingReservations:
        """Return the holding that ``ClusterLedger.decided`` gives a binding; ``put`` records it.

        ``first`` makes the holding where ``current`` is None, for several clusters.
        """
        version = self.version + 1
        if current is None:
            return first.of(self._base.cluster, shares, version, adopted)
        answered_version = self._base.answered_version
        return reserve_again(
            current, first.decision, shares, adopted or {}, version, answered_version
        )

    def put(
        self, binding: str, current: BindingReservations | None, holding: BindingReservations
    ) -> None:
        """Record a holding made for the next version, in place of ``current``."""
        self.version += 1
        if current is None or changes_interest(current, holding):
            self._interest_version = self.version
        self._changed[binding] = holding

    def release(self, binding: str) -> None:
        """Remove the holding of a binding."""
        self.version += 1
        if self.reservations_of(binding) is not None:
            self._interest_version = self.version
        self._changed[binding] = None


def _by_binding(echoes: Sequence[Echo]) -> Mapping[str, tuple[Echo, ...]]:
    seen = {echo.binding: (echo,) for echo in echoes}
    if len(seen) == len(echoes):
        return seen
    by_binding: defaultdict[str, tuple[Echo, ...]] = defaultdict(tuple)
    for echo in echoes:
        by_binding[echo.binding] += (echo,)
    return by_binding
