"""Capacity that is taken before its pods are on nodes: claims, and pods that are assumed there.

Must not choose nodes, nor judge pods. Times are in Unix seconds and passed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from estimator.nodes import Pod
from estimator.snapshot import NodeTable
from federation.model.arrays import BoolArray, IntArray
from federation.model.errors import Unavailable
from federation.model.resources import MAX_AMOUNT, PODS
from federation.model.shapes import ReservationKey
from federation.model.workload import NodeClaim

# A pod without a version that no watch has shown: kube-scheduler hears of a pod at most this much
# earlier. One with a version ends at once when the watch is past it, and else as one that is shown:
# the watch is behind, however long.
UNSHOWN_SECONDS: Final = 5.0
# A pod that is shown without a node: kube-scheduler binds 50 a second, so that bursts take time.
BINDING_SECONDS: Final = 60.0
# A pod whose volumes or devices are prepared before it is bound: kube-scheduler's own limit.
PREPARING_SECONDS: Final = 600.0
# A uid takes about 150 bytes. Calls about a deleted pod are under way for seconds.
MAX_DELETED: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assumption:
    """Since when a pod is assumed, for how many seconds, and the callback that stops counting."""

    began_at: float
    seconds: float
    end: Callable[[str], None]


class Assumptions:
    """Assumed pods by uid, and the uids of the newest deleted pods.

    ``is_shown`` says whether a watch has shown the pod with this uid. Versions are those of the API
    server's objects, which grow with every change of any of them; 0: not known.
    """

    def __init__(self, is_shown: Callable[[str], bool] = lambda _: True) -> None:
        self._is_shown = is_shown
        self._assumptions: dict[str, _Assumption] = {}
        self._deleted: dict[str, None] = {}
        # The versions of assumed pods that the watch has not shown, and the version it has reached.
        self._unshown: dict[str, int] = {}
        self._version = 0
        # No assumption ends by time before these.
        self._next_end = math.inf
        self._held_until = -math.inf

    def __len__(self) -> int:
        return len(self._assumptions)

    def begin(
        self,
        uid: str,
        now: float,
        end: Callable[[str], None],
        *,
        is_prepared: bool = False,
        version: int = 0,
    ) -> bool:
        """Assume a pod in place of an earlier assumption; False for a pod that was deleted.

        ``end`` is called once the assumption ends. ``is_prepared``: volumes or devices of the pod
        are prepared before it is bound. ``version`` is the pod's where it was last seen.
        """
        self.end(uid)
        if uid in self._deleted:
            return False
        if version and not self._is_shown(uid):
            if version <= self._version:
                return False
            self._unshown[uid] = version
        seconds = PREPARING_SECONDS if is_prepared else BINDING_SECONDS
        self._assumptions[uid] = _Assumption(began_at=now, seconds=seconds, end=end)
        self._next_end = min(self._next_end, now + UNSHOWN_SECONDS)
        return True

    def confirm(self, uid: str) -> None:
        """End the assumption by no time: a watch shows the pod on its node."""
        assumption = self._assumptions.get(uid)
        if assumption is not None:
            self._assumptions[uid] = replace(assumption, seconds=math.inf)

    def end(self, uid: str) -> None:
        """Assume the pod no more: it is shown with a node, has ended, or gets no node."""
        assumption = self._assumptions.pop(uid, None)
        if assumption is not None:
            self._unshown.pop(uid, None)
            assumption.end(uid)

    def shown(self, uid: str) -> None:
        """Note that a watch shows the pod: it was not deleted."""
        if self._deleted:
            self._deleted.pop(uid, None)
        if self._unshown:
            self._unshown.pop(uid, None)

    def reach(self, version: int) -> None:
        """Note that the watch has shown all there is, or was changed, up to this version.

        A pod that it would have shown by then, and has not, was deleted while nobody watched.
        """
        self._version = version
        if self._unshown:
            for uid in [uid for uid, seen in self._unshown.items() if seen <= version]:
                self.end(uid)

    def deleted(self, uid: str) -> None:
        """Note that the pod was deleted: later calls about it are late."""
        self.end(uid)
        self._deleted[uid] = None
        if len(self._deleted) > MAX_DELETED:
            del self._deleted[next(iter(self._deleted))]

    def expire(self, now: float) -> None:
        """End the assumptions whose time is over."""
        if now < max(self._next_end, self._held_until):
            return
        ends = {uid: self._ends_at(uid) for uid in self._assumptions}
        for uid, ends_at in ends.items():
            if ends_at <= now:
                self.end(uid)
        self._next_end = min((at for at in ends.values() if at > now), default=math.inf)

    def hold(self, now: float) -> None:
        """End none by time for a while: the watches show nothing now."""
        self._held_until = now + UNSHOWN_SECONDS

    def _ends_at(self, uid: str) -> float:
        assumption = self._assumptions[uid]
        is_awaited = uid in self._unshown or self._is_shown(uid)
        seconds = assumption.seconds if is_awaited else UNSHOWN_SECONDS
        return assumption.began_at + seconds


EXPIRY_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Room for replicas of one shape on one node. ``request`` is without the pod slot.

    ``promise`` is whose planned claim it is, ``node_claim`` what else its pods ask of a node.
    ``taken`` is all that it takes of the node, slots too, ``nonzero_taken`` as scoring counts it.
    """

    node: str
    replicas: int
    request: Mapping[str, int]
    nonzero: Mapping[str, int]
    promise: ReservationKey | None = None
    node_claim: NodeClaim | None = None
    taken: Mapping[str, int] = field(init=False, compare=False, repr=False)
    nonzero_taken: Mapping[str, int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Claims are read far more often than they are made.
        taken = {name: amount * self.replicas for name, amount in self.request.items()}
        nonzero = {name: amount * self.replicas for name, amount in self.nonzero.items()}
        object.__setattr__(self, "taken", {**taken, PODS: self.replicas})
        object.__setattr__(self, "nonzero_taken", nonzero)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClaimsUntil:
    """The nodes that one binding or promise holds until a time."""

    claims: tuple[Claim, ...]
    expires_at: float
    decision: str = ""


class Claims:
    """All claims on the nodes of one cluster: by binding, and by promise where planned.

    ``version`` grows with every change.
    """

    def __init__(self) -> None:
        self.version = 0
        self._by_binding: dict[str, _ClaimsUntil] = {}
        self._planned: dict[ReservationKey, _ClaimsUntil] = {}

    def hold(self, binding: str, claims: Iterable[Claim], now: float, decision: str = "") -> None:
        """Replace what the binding holds; ``binding`` is namespace/name, or the name alone."""
        self.version += 1
        held = tuple(replace(claim, promise=None) for claim in claims)
        self._by_binding[binding] = _ClaimsUntil(
            claims=held, expires_at=now + EXPIRY_SECONDS, decision=decision
        )

    def decision_of(self, binding: str) -> str:
        """Which decision asked for the claims of the binding; empty without claims."""
        held = self._by_binding.get(binding)
        return held.decision if held is not None else ""

    def release(self, binding: str) -> None:
        if self._by_binding.pop(binding, None) is not None:
            self.version += 1

    def plan(
        self, key: ReservationKey, claims: Iterable[Claim], expires_at: float = math.inf
    ) -> None:
        """Replace what a promise holds, for good unless it expires."""
        held = tuple(replace(claim, promise=key) for claim in claims)
        former = self._planned.get(key)
        if (held, expires_at) == (
            (former.claims, former.expires_at) if former else ((), expires_at)
        ):
            return
        self.version += 1
        if held:
            self._planned[key] = _ClaimsUntil(claims=held, expires_at=expires_at)
        else:
            self._planned.pop(key, None)

    def planned(self, key: ReservationKey) -> tuple[Claim, ...]:
        """Return the claims of a promise."""
        held = self._planned.get(key)
        return held.claims if held is not None else ()

    def promises(self) -> Collection[ReservationKey]:
        """Return the keys of the bindings that hold nodes."""
        return list(self._planned)

    def expires_at(self, key: ReservationKey) -> float:
        """When what the promise holds ends, unless it is said before what it is worth."""
        held = self._planned.get(key)
        return held.expires_at if held is not None else math.inf

    def is_provisional(self, key: ReservationKey) -> bool:
        """Whether what the promise holds would expire."""
        return self.expires_at(key) < math.inf

    def expire(self, now: float) -> None:
        """Drop what nobody's pods have come for."""
        for binding in [name for name, held in self._by_binding.items() if held.expires_at <= now]:
            self.release(binding)
        for key in [key for key, held in self._planned.items() if held.expires_at <= now]:
            self.plan(key, ())

    def settle(self, pod: Pod, key: ReservationKey | None = None) -> None:
        """A pod got bound: the replica that was claimed for it is counted with the pods now.

        ``key`` is the promise that the pod stands for.
        """
        planned = self._planned.get(key) if key is not None else None
        if key is not None and planned is not None:
            nodes = [claim.node for claim in planned.claims]
            position = nodes.index(pod.node) if pod.node in nodes else 0
            self.plan(key, _without_one(planned.claims, position), planned.expires_at)
            return
        oldest: tuple[str, int] | None = None
        for binding, held in self._by_binding.items():
            if _namespace(binding) != pod.namespace:
                continue
            for position, claim in enumerate(held.claims):
                if claim.request != pod.request:
                    continue
                if claim.node == pod.node:
                    self._take_one(binding, position)
                    return
                oldest = oldest or (binding, position)
        if oldest is not None:
            self._take_one(*oldest)

    def all(self) -> Iterator[Claim]:
        for held in (*self._by_binding.values(), *self._planned.values()):
            yield from held.claims

    def split(
        self, namespace: str, request: Mapping[str, int], key: ReservationKey | None = None
    ) -> tuple[list[Claim], list[Claim]]:
        """(room that waits for such pods, room that is others').

        Such pods are those of this namespace and request, and of this promise.
        """
        own: list[Claim] = []
        foreign: list[Claim] = []
        for binding, held in self._by_binding.items():
            for claim in held.claims:
                is_own = _namespace(binding) == namespace and claim.request == request
                (own if is_own else foreign).append(claim)
        for promise, held in self._planned.items():
            (own if promise == key else foreign).extend(held.claims)
        return own, foreign

    def _take_one(self, binding: str, position: int) -> None:
        self.version += 1
        held = self._by_binding[binding]
        claims = _without_one(held.claims, position)
        if claims:
            self._by_binding[binding] = replace(held, claims=claims)
        else:
            del self._by_binding[binding]


def first_replicas(claims: Sequence[Claim], replicas: int) -> tuple[Claim, ...]:
    """The claims for the first so many replicas."""
    remaining = []
    for claim in claims:
        if replicas <= 0:
            break
        remaining.append(replace(claim, replicas=min(claim.replicas, replicas)))
        replicas -= claim.replicas
    return tuple(remaining)


def _namespace(binding: str) -> str:
    return binding.rpartition("/")[0]


def _without_one(claims: tuple[Claim, ...], position: int) -> tuple[Claim, ...]:
    claim = claims[position]
    rest = (replace(claim, replicas=claim.replicas - 1),) if claim.replicas > 1 else ()
    return (*claims[:position], *rest, *claims[position + 1 :])


# kube-scheduler binds fifty a second and judges many more: a burst of so many may be on its way.
MAX_PODS: Final = 10_000
_MOST_COUNTED: Final = MAX_AMOUNT // (2 * MAX_PODS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assumed:
    """A pod, its amounts with the pod slot, and its nodes as bits.

    ``key`` is the promise whose claims the nodes were kept for.
    """

    key: ReservationKey | None
    amounts: Mapping[str, int]
    nodes: npt.NDArray[np.uint8]


class AssumedPods:
    """Pods that were let on nodes of one cluster, until their assumptions end."""

    def __init__(self, assumptions: Assumptions | None = None) -> None:
        self._assumptions = Assumptions() if assumptions is None else assumptions
        self._pods: dict[str, _Assumed] = {}
        self._table = NodeTable.of(())
        self._sums: dict[str, IntArray] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def promises(self) -> set[ReservationKey]:
        """Return the promises whose pods are on their way to nodes that are kept for them."""
        return {pod.key for pod in self._pods.values() if pod.key is not None}

    def assume(
        self,
        uid: str,
        request: Mapping[str, int],
        node_n: BoolArray,
        table: NodeTable,
        now: float,
        key: ReservationKey | None = None,
        *,
        is_prepared: bool = False,
        version: int = 0,
    ) -> None:
        """The pod may be on any of these nodes from now on, and is no longer where it was let.

        A pod that was deleted takes nothing. ``request`` is without the pod slot; ``is_prepared``
        and ``version`` are as in ``Assumptions.begin``. Raises Unavailable when too many are on
        their way.
        """
        self.drop(uid)
        if not node_n.any():
            return
        if len(self._pods) >= MAX_PODS:
            self._assumptions.expire(now)
        if len(self._pods) >= MAX_PODS:
            raise Unavailable(f"{MAX_PODS} pods were let on nodes and are not seen there yet")
        if not self._assumptions.begin(
            uid, now, self._uncount, is_prepared=is_prepared, version=version
        ):
            return
        self._arrange(table)
        amounts = {name: min(amount, _MOST_COUNTED) for name, amount in request.items()}
        assumed = _Assumed(
            key=key,
            amounts={**amounts, PODS: 1},
            nodes=np.packbits(node_n),
        )
        self._pods[uid] = assumed
        self._count(assumed, np.flatnonzero(node_n), +1)

    def drop(self, uid: str) -> None:
        """The pod is on no node but by what else is known of it."""
        if uid in self._pods:
            self._assumptions.end(uid)

    def beside(self, claims: Iterable[Claim], table: NodeTable) -> dict[str, IntArray]:
        """Return the amounts that assumed pods take of every node beyond these claims, by resource.

        A promise's pods on nodes that are claimed for it are in its claims as long as those last.
        """
        self._arrange(table)
        sums = dict(self._sums)
        for (_, row), amounts in self._beyond(claims).items():
            for name, amount in amounts.items():
                column = sums.get(name)
                added = column.copy() if column is not None else np.zeros(len(table), np.int64)
                added[row] += amount
                sums[name] = added
        return sums

    def _beyond(self, claims: Iterable[Claim]) -> dict[tuple[ReservationKey, int], dict[str, int]]:
        """By promise and node: what pods on their way to claimed nodes take beyond the claims."""
        taken: dict[tuple[ReservationKey, int], dict[str, int]] = {}
        for assumed in self._pods.values():
            if assumed.key is None:
                continue
            for row in self._rows(assumed).tolist():
                _add(taken.setdefault((assumed.key, row), {}), assumed.amounts, +1)
        if not taken:
            return taken
        rows = {self._table.nodes[row].name: row for _, row in taken}
        for claim in claims:
            key, row = claim.promise, rows.get(claim.node)
            usage = taken.get((key, row)) if key is not None and row is not None else None
            if usage is not None:
                _add(usage, claim.taken, -1)
        return {
            place: {name: amount for name, amount in amounts.items() if amount > 0}
            for place, amounts in taken.items()
        }

    def _uncount(self, uid: str) -> None:
        assumed = self._pods.pop(uid)
        self._count(assumed, self._rows(assumed), -1)

    def _count(self, assumed: _Assumed, rows: npt.NDArray[np.int64], sign: int) -> None:
        if assumed.key is not None:
            return
        for name, amount in assumed.amounts.items():
            column = self._sums.get(name)
            if column is None:
                column = self._sums[name] = np.zeros(len(self._table), dtype=np.int64)
            column[rows] += sign * amount

    def _rows(self, assumed: _Assumed) -> npt.NDArray[np.int64]:
        return np.flatnonzero(np.unpackbits(assumed.nodes, count=len(self._table)))

    def _arrange(self, table: NodeTable) -> None:
        """Make these the nodes; what was on others is there no more."""
        former, self._table = self._table, table
        if former is table or [node.name for node in former.nodes] == [
            node.name for node in table.nodes
        ]:
            return
        rows = {node.name: row for row, node in enumerate(former.nodes)}
        old_row_n = np.array([rows.get(node.name, len(rows)) for node in table.nodes], np.int64)
        self._sums = {}
        for uid, assumed in self._pods.items():
            bits = np.append(np.unpackbits(assumed.nodes, count=len(former)), 0)
            moved = _Assumed(
                key=assumed.key,
                amounts=assumed.amounts,
                nodes=np.packbits(bits[old_row_n]),
            )
            self._pods[uid] = moved
            self._count(moved, self._rows(moved), +1)


def _add(total: dict[str, int], amounts: Mapping[str, int], times: int) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + times * amount
