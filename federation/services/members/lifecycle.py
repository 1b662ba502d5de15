"""Members that are cordoned, accepted, replaced, revoked, or deleted.

Must not end a stream before the change that ends it is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from federation.model.cluster import Cluster
from federation.model.errors import (
    InvalidRequest,
    NotFound,
    PermissionRefused,
    PreconditionFailed,
    Unauthenticated,
    Violation,
)
from federation.model.placement import Binding, BindingName, binding_key
from federation.model.waiting import SUSPENDED, WaitState
from federation.services.binding_ports import NewWait, StoredBinding
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import BindingChanged, ClusterChanged, new_nonce
from federation.services.member_ports import AgentStreams, StoredCluster
from federation.services.ports import Store, Transaction
from federation.services.values import ClusterView

BINDINGS_NAMED = 3


class Membership:
    """Use cases of operators with member clusters, except their specs."""

    def __init__(self, store: Store, fleet: FleetOwner, streams: AgentStreams) -> None:
        self._store = store
        self._fleet = fleet
        self._streams = streams

    async def cordon(
        self, name: str, *, cordoned: bool, reason: str = "", by: str = ""
    ) -> ClusterView:
        """Keep new replicas away, or let them in again; others stay. Raises NotFound."""
        async with self._store.transaction() as tx:
            stored = await _locked(tx, name)
            cluster = stored.cluster
            if not cordoned:
                reason = by = ""
            if cluster.cordoned != cordoned or (reason and reason != cluster.cordon_reason):
                changed = replace(cluster, cordoned=cordoned, cordon_reason=reason, cordoned_by=by)
                cluster = await _put(tx, stored, changed)
        self._fleet.put_cluster(cluster)
        return self._fleet.view(name)

    async def accept(self, name: str) -> ClusterView:
        """Let new replicas into a held cluster. Raises NotFound, PreconditionFailed."""
        async with self._store.transaction() as tx:
            stored = await _locked(tx, name)
            _check_held(stored.cluster)
            cluster = await _put(tx, stored, replace(stored.cluster, held=False))
        self._fleet.put_cluster(cluster)
        return self._fleet.view(name)

    async def reject(self, name: str) -> None:
        """Forget a held cluster. Raises NotFound, PreconditionFailed."""
        async with self._store.transaction() as tx:
            await tx.credentials.cancel_join_tokens(name)
            stored = await _locked(tx, name)
            _check_held(stored.cluster)
            asked_again = await _forget(tx, stored)
        self._fleet.remove(name)
        self._apply(asked_again)
        self._streams.dismiss(name, PermissionRefused(f"Cluster {name!r} was rejected."))

    async def delete(self, name: str, *, force: bool) -> None:
        """Forget a cluster and all credentials of its agent.

        Raises NotFound, and PreconditionFailed while bindings hold replicas there, unless forced.
        """
        async with self._store.transaction() as tx:
            await tx.credentials.cancel_join_tokens(name)
            stored = await _locked(tx, name)
            # From now on no binding is placed there, and all earlier placements are committed.
            await tx.journal.lock([name])
            holding = await tx.bindings.holding(name, BINDINGS_NAMED + 1)
            if holding and not force:
                raise PreconditionFailed(_still_holding(name, holding), reason="STILL_HOLDING")
            asked_again = await _forget(tx, stored)
        self._fleet.remove(name)
        self._apply(asked_again)
        self._streams.dismiss(name, PermissionRefused(f"Cluster {name!r} was deleted."))

    async def replace(self, name: str, cluster_uid: str) -> ClusterView:
        """Give the name to the Kubernetes cluster with that uid, and forget the old one.

        Raises NotFound, and InvalidRequest for a uid that is empty or already the cluster's.
        """
        if not cluster_uid:
            raise InvalidRequest([Violation(field="clusterUid", rule="must not be empty")])
        async with self._store.transaction() as tx:
            stored = await _locked(tx, name)
            if stored.cluster.uid == cluster_uid:
                rule = f"is the uid that cluster {name!r} has already"
                raise InvalidRequest([Violation(field="clusterUid", rule=rule)])
            await tx.credentials.revoke_all(name)
            emptied, asked_again = await _emptied(tx, name, f"cluster {name} was replaced")
            nonce = new_nonce()
            cluster = await tx.clusters.put_uid(stored.id, cluster_uid, nonce)
            change = ClusterChanged(cluster=name, emptied=emptied, nonce=nonce)
            await tx.journal.append([*asked_again, change])
        self._fleet.put_cluster(cluster)
        self._apply(asked_again)
        self._streams.dismiss(
            name, PermissionRefused(f"Cluster {name!r} was replaced by {cluster_uid!r}.")
        )
        return self._fleet.view(name)

    async def revoke(self, name: str) -> int:
        """End all credentials and join tokens of a cluster; return how many credentials."""
        async with self._store.transaction() as tx:
            await tx.credentials.cancel_join_tokens(name)
            await _locked(tx, name)
            ended = await tx.credentials.revoke_all(name)
            # The control plane that serves the agent looks whether its credential is valid.
            await tx.journal.append([ClusterChanged(cluster=name)])
        self._streams.dismiss(
            name, Unauthenticated(f"The credential of cluster {name!r} was revoked.")
        )
        return ended

    def _apply(self, changes: Sequence[BindingChanged]) -> None:
        for change in changes:
            self._fleet.apply(change)


async def _locked(tx: Transaction, name: str) -> StoredCluster:
    stored = await tx.clusters.lock(name)
    if stored is None:
        raise NotFound(f"There is no cluster {name!r}.")
    return stored


def _check_held(cluster: Cluster) -> None:
    """Raises PreconditionFailed."""
    if not cluster.held:
        raise PreconditionFailed(
            f"Cluster {cluster.name!r} is not held: nobody has to accept it.", reason="NOT_HELD"
        )


async def _put(tx: Transaction, stored: StoredCluster, changed: Cluster) -> Cluster:
    cluster = await tx.clusters.put(stored.id, changed)
    await tx.journal.append([ClusterChanged(cluster=cluster.name)])
    return cluster


async def _forget(tx: Transaction, stored: StoredCluster) -> Sequence[BindingChanged]:
    """Delete a cluster without join tokens; return the changes of its bindings."""
    name = stored.cluster.name
    _, asked_again = await _emptied(tx, name, f"cluster {name} was deleted")
    await tx.clusters.delete(stored.id)
    await tx.journal.append([*asked_again, ClusterChanged(cluster=name, deleted=True)])
    return asked_again


async def _emptied(tx: Transaction, name: str, why: str) -> tuple[int, list[BindingChanged]]:
    """Take back what is promised in a cluster, and take it out of all placements.

    Those bindings wait. Return the ledger version that this makes, and what everybody is told;
    ``why`` is for people. Locks are taken in the order of ``store.statements.Lock``.
    """
    versions = await tx.journal.lock([name])
    vanished = await _leave(tx, name)
    await tx.reservations.leave(name)
    for start in range(0, len(vanished), BINDINGS_AT_ONCE):
        page = vanished[start : start + BINDINGS_AT_ONCE]
        await tx.waiting.put([_new_wait(stored, name, why) for stored in page])
    changes = [
        BindingChanged.of(_without(stored.binding, name), decision=stored.decision_id, waits=True)
        for stored in vanished
    ]
    return versions[name].version + 1 if name in versions else 1, changes


def _still_holding(name: str, holding: Sequence[BindingName]) -> str:
    keys = [binding_key(namespace, binding) for namespace, binding in holding[:BINDINGS_NAMED]]
    suffix = " and others" if len(holding) > BINDINGS_NAMED else ""
    return (
        f"Bindings {', '.join(keys)}{suffix} hold replicas in cluster {name!r}: "
        "move them first, or force it."
    )


BINDINGS_AT_ONCE: Final = 100


async def _leave(tx: Transaction, cluster: str) -> list[StoredBinding]:
    """Take a cluster out of all placements; return the bindings as they were.

    The ledger of the cluster is locked: nobody is placed there meanwhile.
    """
    vanished: list[StoredBinding] = []
    names = await tx.bindings.in_cluster(cluster)
    for start in range(0, len(names), BINDINGS_AT_ONCE):
        locked = await tx.bindings.lock_all(names[start : start + BINDINGS_AT_ONCE])
        present = [stored for stored in locked.values() if _share(stored, cluster) is not None]
        await tx.failover.leave(cluster, [stored.id for stored in present])
        vanished += present
    return vanished


def _share(stored: StoredBinding, cluster: str) -> int | None:
    """Return its replicas in the cluster, None if it is not there."""
    shares = {target.name: target.replicas for target in stored.binding.clusters}
    return shares.get(cluster)


def _without(binding: Binding, cluster: str) -> Binding:
    clusters = tuple(target for target in binding.clusters if target.name != cluster)
    return replace(binding, clusters=clusters)


def _new_wait(stored: StoredBinding, cluster: str, why: str) -> NewWait:
    binding, wait = stored.binding, stored.wait
    is_suspended = wait is not None and wait.is_suspended
    lost = _share(stored, cluster) or 0
    return NewWait(
        binding_id=stored.id,
        namespace=binding.namespace,
        name=binding.name,
        priority=binding.priority,
        remainder=lost + (wait.remainder if wait else 0),
        short_of=why,
        state=WaitState.GATED if is_suspended else WaitState.UNSCHEDULABLE,
        gate=SUSPENDED if is_suspended else "",
    )
