"""How many pods stand for each promise, counted pod event by pod event.

An event costs O(1), an interest O(its pods). Belongs to the loop that owns the cache. The rule by
which pods stand for promises is ``federation.model.echoes``'; must not have one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final, TypeVar

from estimator.nodes import Pod, PodState
from federation.model import echoes
from federation.model.echoes import (
    Interest,
    InterestUpdate,
    Lookout,
    Owner,
    PodOrigin,
    PodSighting,
    reservation_of,
)
from federation.model.shapes import Echo, ReservationKey

# Their controllers put another pod in the place of one that ended, whatever it ended with.
_REPLACING: Final = frozenset(
    {"DaemonSet", "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"}
)

_Key = TypeVar("_Key", str, Owner)


class _Tally:
    """The pods of one reservation. ``known`` are as many bound ones as were ever told of."""

    __slots__ = ("bound", "finished", "key", "known", "unbound")

    def __init__(self, key: ReservationKey) -> None:
        self.key = key
        self.bound = 0
        self.unbound = 0
        self.finished = 0
        self.known = 0

    def add(self, state: echoes.SightingState, sign: int) -> None:
        match state:
            case echoes.SightingState.BOUND:
                self.bound += sign
            case echoes.SightingState.UNBOUND:
                self.unbound += sign
            case echoes.SightingState.FINISHED:
                self.finished += sign

    @property
    def echo(self) -> Echo | None:
        """Return None: there is no pod."""
        if not (self.bound or self.unbound or self.finished):
            return None
        binding, component, shape = self.key
        return Echo(
            binding=binding,
            component=component,
            shape=shape,
            bound=self.bound,
            unbound=self.unbound,
            finished=self.finished,
        )


class EchoCount:
    """The pods of every promise that is looked for. ``pod_of`` finds a pod that is there by uid.

    ``version`` is that of the newest update that was told as a whole; 0: nothing was.
    """

    def __init__(self, pod_of: Callable[[str], Pod | None]) -> None:
        self.version = 0
        self._pod_of = pod_of
        self._lookout = Lookout()
        self._labelled: dict[str, set[str]] = {}
        self._owned: dict[Owner, set[str]] = {}
        self._tallies: dict[ReservationKey, _Tally] = {}
        # By the uids of the pods that stand for something.
        self._stands: dict[str, _Tally] = {}
        self._echoes: dict[ReservationKey, Echo] = {}
        self._changed: set[ReservationKey] = set()
        self._has_grown = False

    def follow(self, former: Pod | None, current: Pod | None) -> None:
        """A pod was ``before`` and is ``after``; None: not there."""
        if former is not None:
            tally = self._stands.pop(former.uid, None)
            if tally is not None:
                self._add(tally, former, -1)
        origin_before = former.origin if former is not None else None
        origin_after = current.origin if current is not None else None
        # Most pods that say the same share it, which is quicker to see.
        if origin_before is not origin_after and origin_before != origin_after:
            if former is not None:
                self._index(former.origin, former.uid, is_there=False)
            if current is not None:
                self._index(current.origin, current.uid, is_there=True)
        if current is not None:
            self._stand(current)

    def tell(self, update: InterestUpdate) -> Iterator[None]:
        """Look for this from now on. Goes on step by step, between which other things may happen.

        ``version`` is the update's once the last step is done.
        """
        gone: Collection[str] = update.removed
        if update.whole:
            self.version = 0
            listed = {interest.binding for interest in update.interests}
            gone = [binding for binding in self._lookout.bindings() if binding not in listed]
        for binding in gone:
            yield from self._look_for(binding, None)
        for interest in update.interests:
            if self._lookout.get(interest.binding) == interest:
                yield
                continue
            yield from self._look_for(interest.binding, interest)
        self.version = update.version

    def take(self) -> tuple[Echo, ...]:
        """The echoes as of now; what has grown until now is known."""
        for key in self._changed:
            tally = self._tallies.get(key)
            echo = tally.echo if tally is not None else None
            if echo is not None:
                self._echoes[key] = echo
            else:
                self._echoes.pop(key, None)
                self._tallies.pop(key, None)
        self._changed.clear()
        self._has_grown = False
        return tuple(self._echoes.values())

    @property
    def has_grown(self) -> bool:
        """Whether some promise has more pods on nodes than were ever told of."""
        return self._has_grown

    def interest(self, binding: str) -> Interest | None:
        return self._lookout.get(binding)

    def key_of(self, pod: Pod) -> ReservationKey | None:
        """The promise that a pod stands for."""
        tally = self._stands.get(pod.uid)
        return tally.key if tally is not None else None

    def key_for(self, sighting: PodSighting) -> ReservationKey | None:
        """The promise that such a pod would stand for."""
        return reservation_of(self._lookout, sighting)

    def held(self, key: ReservationKey) -> int:
        """How many pods of a promise need no claim: they are on nodes, or have finished."""
        tally = self._tallies.get(key)
        return tally.bound + tally.finished if tally is not None else 0

    def waiting(self, key: ReservationKey) -> int:
        """How many pods of a promise have no node."""
        tally = self._tallies.get(key)
        return tally.unbound if tally is not None else 0

    def pods_of(self, key: ReservationKey) -> list[Pod]:
        """The pods that stand for a promise."""
        interest = self._lookout.get(key.binding)
        uids = self._uids_of(interest) if interest is not None else set()
        pods = [self._pod_of(uid) for uid in uids if self._stands_for(uid, key)]
        return [pod for pod in pods if pod is not None]

    def _stands_for(self, uid: str, key: ReservationKey) -> bool:
        tally = self._stands.get(uid)
        return tally is not None and tally.key == key

    def _look_for(self, binding: str, interest: Interest | None) -> Iterator[None]:
        former = self._lookout.get(binding)
        uids = self._uids_of(former) if former is not None else set()
        if interest is None:
            self._lookout.remove(binding)
        else:
            self._lookout.put(interest)
            uids |= self._uids_of(interest)
        for uid in uids:
            self._count_anew(uid)
            yield
        for sought in interest.shapes if interest is not None else ():
            tally = self._tallies.get(ReservationKey(binding, sought.component, sought.shape))
            if tally is not None:
                tally.known = tally.bound

    def _uids_of(self, interest: Interest) -> set[str]:
        labelled = self._labelled.get(interest.uid, set()) if interest.uid else set()
        owned = self._owned.get(interest.owner, set()) if interest.owner is not None else set()
        return labelled | owned

    def _count_anew(self, uid: str) -> None:
        pod = self._pod_of(uid)
        if pod is None:
            return
        tally = self._stands.pop(uid, None)
        if tally is not None:
            self._add(tally, pod, -1)
        self._stand(pod)

    def _stand(self, pod: Pod) -> None:
        if self._lookout.of(pod.origin) is None:
            return
        state = state_of(pod)
        if state is None:
            return
        sighting = PodSighting(state=state, request=pod.request, origin=pod.origin)
        key = reservation_of(self._lookout, sighting)
        if key is None:
            return
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = _Tally(key)
        self._stands[pod.uid] = tally
        self._add(tally, pod, +1)

    def _add(self, tally: _Tally, pod: Pod, sign: int) -> None:
        state = state_of(pod)
        if state is None:
            return
        tally.add(state, sign)
        self._changed.add(tally.key)
        if tally.bound > tally.known:
            tally.known = tally.bound
            self._has_grown = True

    def _index(self, origin: PodOrigin, uid: str, *, is_there: bool) -> None:
        put = _put if is_there else _drop
        if origin.binding_uid:
            put(self._labelled, origin.binding_uid, uid)
        for owner in origin.owners:
            put(self._owned, owner, uid)


def state_of(pod: Pod) -> echoes.SightingState | None:
    """Return the pod's part in a promise; None: it has none."""
    match pod.state:
        case PodState.BOUND:
            return echoes.SightingState.BOUND
        case PodState.WAITING | PodState.GATED:
            return echoes.SightingState.UNBOUND
        case PodState.SUCCEEDED:
            is_replaced = pod.origin.owners and pod.origin.owners[0].kind in _REPLACING
            return None if is_replaced else echoes.SightingState.FINISHED
        case PodState.DONE | PodState.DROPPED:
            return None


def _put(index: dict[_Key, set[str]], key: _Key, uid: str) -> None:
    uids = index.get(key)
    if uids is None:
        index[key] = {uid}
    else:
        uids.add(uid)


def _drop(index: dict[_Key, set[str]], key: _Key, uid: str) -> None:
    uids = index[key]
    uids.discard(uid)
    if not uids:
        del index[key]
