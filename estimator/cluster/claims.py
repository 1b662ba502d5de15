"""Room that was promised to a binding on nodes where its pods are not yet bound.

Must not choose nodes: ``estimator.placing.place`` does. Times are in Unix seconds and passed in.

A claim ends when its binding is placed anew or is promised nothing any more, when a pod of the
binding's namespace with the same request gets bound (one replica a pod, on the pod's own node
first), or when it has expired. Planned claims belong to a promise: they end when one of its own
pods gets bound, or are given up with it; before the control plane has said that it knows of the
promise they expire like the others.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from estimator.nodes import Pod
from federation.model.resources import PODS
from federation.model.shapes import ReservationKey
from federation.model.workload import NodeClaim

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
    """What one binding, or one promise, holds, until then."""

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
        known = self._planned.get(key)
        if (held, expires_at) == ((known.claims, known.expires_at) if known else ((), expires_at)):
            return
        self.version += 1
        if held:
            self._planned[key] = _ClaimsUntil(claims=held, expires_at=expires_at)
        else:
            self._planned.pop(key, None)

    def planned(self, key: ReservationKey) -> tuple[Claim, ...]:
        """What a promise holds."""
        held = self._planned.get(key)
        return held.claims if held is not None else ()

    def promises(self) -> Collection[ReservationKey]:
        """Those that hold anything."""
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
        found: tuple[str, int] | None = None
        for binding, held in self._by_binding.items():
            if _namespace(binding) != pod.namespace:
                continue
            for position, claim in enumerate(held.claims):
                if claim.request != pod.request:
                    continue
                if claim.node == pod.node:
                    self._take_one(binding, position)
                    return
                found = found or (binding, position)
        if found is not None:
            self._take_one(*found)

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
        others: list[Claim] = []
        for binding, held in self._by_binding.items():
            for claim in held.claims:
                is_own = _namespace(binding) == namespace and claim.request == request
                (own if is_own else others).append(claim)
        for promise, held in self._planned.items():
            (own if promise == key else others).extend(held.claims)
        return own, others

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
    kept = []
    for claim in claims:
        if replicas <= 0:
            break
        kept.append(replace(claim, replicas=min(claim.replicas, replicas)))
        replicas -= claim.replicas
    return tuple(kept)


def _namespace(binding: str) -> str:
    return binding.rpartition("/")[0]


def _without_one(claims: tuple[Claim, ...], position: int) -> tuple[Claim, ...]:
    claim = claims[position]
    left = (replace(claim, replicas=claim.replicas - 1),) if claim.replicas > 1 else ()
    return (*claims[:position], *left, *claims[position + 1 :])
