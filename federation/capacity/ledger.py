"""The ledger: every reservation of every cluster, and what the newest reports echo of them.

Pure and immutable: what happens gives a new ledger. Must not check capacity, nor read a clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from federation.capacity.holdings import (
    FirstStakes,
    Stake,
    answered_stake,
    is_news,
    next_stake,
    restored_stake,
)
from federation.model.reservations import Outstanding, Reservation, Share
from federation.model.shapes import Echo

ValueT = TypeVar("ValueT")

# A change copies one part, and the list of all parts: about as long for ten thousand keys.
_KEYS_A_PART: Final = 64
_GROWTH: Final = 4


class SharingMap(Mapping[str, ValueT], Generic[ValueT]):
    """Keys in parts by their hash: a few changes cost about the same at any size."""

    __slots__ = ("_parts", "_size")

    def __init__(self, parts: tuple[dict[str, ValueT], ...] = ({},), size: int = 0) -> None:
        """``parts`` by the keys' hashes; ``of`` makes them."""
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
        """With these values, and without the keys that have None."""
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
            every = (item for part in parts for item in part.items())
            return SharingMap(_parted(every, _parts_for(size)), size)
        return SharingMap(tuple(parts), size)

    def with_values(self, change: Callable[[str, ValueT], ValueT]) -> SharingMap[ValueT]:
        """The same keys, each with what ``change`` makes of it and its value."""
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


_Bindings: TypeAlias = SharingMap[Stake]

# Where nobody ever asks, as in a cluster that is silent, what decisions replaced must not be kept.
_MOST_CHANGES: Final = 1_000


class _Known(NamedTuple):
    """Bindings with outstanding promises, and these promises: the one that was made last is at the
    end, which it was at version ``newest``.
    """

    by_binding: Mapping[str, Stake]
    in_order: tuple[Outstanding, ...]
    newest: int

    @classmethod
    def of(cls, by_binding: Mapping[str, Stake]) -> _Known:
        in_order, newest = _by_growth(by_binding)
        return cls(by_binding, in_order, newest)

    def with_changes(self, changes: Mapping[str, Stake | None]) -> _Known:
        opened = {key: stake for key, stake in changes.items() if stake and stake.outstanding}
        by_binding = {**self.by_binding, **opened}
        if changes.keys().isdisjoint(self.by_binding) and all(
            stake.versions[0] > self.newest for stake in opened.values()
        ):
            in_order, newest = _by_growth(opened)
            return _Known(by_binding, self.in_order + in_order, max(newest, self.newest))
        for key in changes.keys() - opened.keys():
            by_binding.pop(key, None)
        return _Known.of(by_binding)


def _by_growth(stakes: Mapping[str, Stake]) -> tuple[tuple[Outstanding, ...], int]:
    """All outstanding promises with their versions, the newest at the end."""
    ordered = sorted(
        (version, key, place, part)
        for key, stake in stakes.items()
        for place, (version, part) in enumerate(zip(stake.versions, stake.outstanding, strict=True))
    )
    return tuple([part for _, _, _, part in ordered]), ordered[-1][0] if ordered else 0


_NONE: Final = _Known({}, (), 0)


class _Open:
    """Those with something outstanding: few, as reports take over what they see.

    Made of what they were before and of changes, which are put together once somebody asks, or
    once there are many: decisions do not ask. Safe in any thread.
    """

    __slots__ = ("state", "times_changed")

    def __init__(self, before: _Open | None, changes: Mapping[str, Stake | None]) -> None:
        self.state: _Known | _Changed = _Changed(before, changes)
        self.times_changed: int = before.times_changed + 1 if before is not None else 0
        if self.times_changed > _MOST_CHANGES:
            self.known()

    def __bool__(self) -> bool:
        state = self.state
        if isinstance(state, _Changed) and any(
            stake and stake.outstanding for stake in state.changes.values()
        ):
            return True
        return bool(self.known().by_binding)

    def known(self) -> _Known:
        state, later = self.state, list[Mapping[str, Stake | None]]()
        while isinstance(state, _Changed):
            later.append(state.changes)
            state = state.before.state if state.before is not None else _NONE
        if later:
            changes = dict[str, Stake | None]()
            for each in reversed(later):
                changes |= each
            state = self.state = state.with_changes(changes)
            self.times_changed = 0
        return state


class _Changed(NamedTuple):
    """What was open before, and what bindings hold since."""

    before: _Open | None
    changes: Mapping[str, Stake | None]


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
    _open: _Open = field(default_factory=lambda: _Open(None, {}), repr=False, compare=False)

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
            binding: restored_stake(tuple(given), answered_version, seen.get(binding, ()))
            for binding, given in reservations.items()
        }
        waiting = {binding: stake for binding, stake in held.items() if stake.outstanding}
        return cls(
            cluster=cluster,
            version=version,
            interest_version=version,
            answered_version=answered_version,
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
        """With what a decision gives the binding here, in place of what it had.

        ``adopted`` says by component how many replicas ran before the binding was known. What is
        echoed of a shape stays; a shape that is no longer the newest is only looked for, until
        the newest is seen instead.
        """
        work, before = LedgerInWork(self), self.stake_of(binding)
        stake = work.stake(FirstStakes(binding, decision), before, tuple(shares), adopted)
        work.put(binding, before, stake)
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
                return Stake(held.reservations, held.sought, found)
            made = answered_stake(held, interest_version, found)
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
            _open=_Open(None, opened),
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
        return ClusterLedger(
            cluster=self.cluster,
            version=version,
            interest_version=interest_version,
            answered_version=self.answered_version,
            _held=self._held.with_changes(stakes),
            _open=_Open(self._open, stakes),
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

    def seen_of(self, binding: str) -> int:
        """How many pods of a binding the newest report counts, of whatever shape."""
        held = self._held.get(binding)
        return sum(each.bound + each.unbound for each in held.echoes if each) if held else 0

    @property
    def is_open(self) -> bool:
        """Whether anything is outstanding."""
        return bool(self._open)

    def outstanding(self) -> tuple[Outstanding, ...]:
        """All outstanding promises of the cluster, in the order in which they were made."""
        return self._open.known().in_order

    def outstanding_of(self, binding: str) -> tuple[Outstanding, ...]:
        """One binding's outstanding promises, by version and component.

        A promise that is echoed as a whole is not outstanding.
        """
        held = self._held.get(binding)
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

    def copy(self) -> LedgerInWork:
        """Another one that goes on from here by itself."""
        made = LedgerInWork(self._base)
        made.version, made._interest_version = self.version, self._interest_version
        made._changed = self._changed.copy()
        return made

    @property
    def ledger(self) -> ClusterLedger:
        """What has become of it."""
        return self._base.with_stakes(self.version, self._interest_version, self._changed.copy())

    def stake_of(self, binding: str) -> Stake | None:
        """What a binding holds, None where nothing."""
        if binding in self._changed:
            return self._changed[binding]
        return self._base.stake_of(binding)

    def stake(
        self,
        first: FirstStakes,
        before: Stake | None,
        shares: tuple[Share, ...],
        adopted: Mapping[str, int] | None = None,
    ) -> Stake:
        """What ``ClusterLedger.decided`` gives a binding that holds ``before`` and is given that
        in several clusters; it has it once that is put.
        """
        version = self.version + 1
        if before is None:
            return first.of(self._base.cluster, shares, version, adopted)
        answered_version = self._base.answered_version
        return next_stake(before, first.decision, shares, adopted or {}, version, answered_version)

    def put(self, binding: str, before: Stake | None, stake: Stake) -> None:
        """Give a binding that holds ``before`` a stake that was made at this version."""
        self.version += 1
        if before is None or is_news(before, stake):
            self._interest_version = self.version
        self._changed[binding] = stake

    def release(self, binding: str) -> None:
        """Take all from a binding."""
        self.version += 1
        if self.stake_of(binding) is not None:
            self._interest_version = self.version
        self._changed[binding] = None


def _by_binding(echoes: Sequence[Echo]) -> Mapping[str, tuple[Echo, ...]]:
    seen = {echo.binding: (echo,) for echo in echoes}
    if len(seen) == len(echoes):
        return seen
    every: defaultdict[str, tuple[Echo, ...]] = defaultdict(tuple)
    for echo in echoes:
        every[echo.binding] += (echo,)
    return every
