"""Node claims: room that was promised to a binding on nodes where its pods are not yet bound.

Must not choose nodes: ``estimator.placing`` does. Times are in Unix seconds and passed in.

A claim ends when its binding is placed anew, when a pod of the binding's namespace with the same
request gets bound (one replica a pod, on the pod's own node first), or when it has expired.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from estimator.nodes import Pod

EXPIRY_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClaim:
    """Room for replicas of one shape on one node. ``request`` is without the pod slot."""

    node: str
    replicas: int
    request: Mapping[str, int]
    nonzero: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claims:
    """What one binding holds; ``binding`` is namespace/name, or the name alone."""

    claims: tuple[NodeClaim, ...]
    namespace: str
    expires_at: float


class NodeClaims:
    """All claims on the nodes of one cluster, by binding."""

    def __init__(self) -> None:
        self._by_binding: dict[str, _Claims] = {}

    def hold(self, binding: str, claims: Iterable[NodeClaim], now: float) -> None:
        """Replace what the binding holds."""
        namespace, _, _ = binding.rpartition("/")
        self._by_binding[binding] = _Claims(
            claims=tuple(claims), namespace=namespace, expires_at=now + EXPIRY_SECONDS
        )

    def release(self, binding: str) -> None:
        self._by_binding.pop(binding, None)

    def expire(self, now: float) -> None:
        """Drop what nobody's pods have come for."""
        expired = [name for name, held in self._by_binding.items() if held.expires_at <= now]
        for name in expired:
            del self._by_binding[name]

    def settle(self, pod: Pod) -> None:
        """A pod got bound: the replica that was claimed for it is counted with the pods now."""
        found: tuple[str, int] | None = None
        for binding, held in self._by_binding.items():
            if held.namespace != pod.namespace:
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

    def all(self) -> Iterator[NodeClaim]:
        for held in self._by_binding.values():
            yield from held.claims

    def split(
        self, namespace: str, request: Mapping[str, int]
    ) -> tuple[list[NodeClaim], list[NodeClaim]]:
        """(room that waits for pods of this namespace and request, room that is others')."""
        own: list[NodeClaim] = []
        others: list[NodeClaim] = []
        for held in self._by_binding.values():
            for claim in held.claims:
                is_own = held.namespace == namespace and claim.request == request
                (own if is_own else others).append(claim)
        return own, others

    def _take_one(self, binding: str, position: int) -> None:
        held = self._by_binding[binding]
        claim = held.claims[position]
        left = (replace(claim, replicas=claim.replicas - 1),) if claim.replicas > 1 else ()
        claims = (*held.claims[:position], *left, *held.claims[position + 1 :])
        if claims:
            self._by_binding[binding] = replace(held, claims=claims)
        else:
            del self._by_binding[binding]
