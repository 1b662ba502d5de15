"""The end of promises outside of decisions: release, lease expiry, deletion, downgrade of plans.

Must not promise anything: no change here reduces the free capacity.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from federation.capacity.ledger import ClusterLedger
from federation.model.errors import (
    Conflict,
    NotFound,
    PreconditionFailed,
)
from federation.model.node_plans import LostPlan, NodePlan
from federation.model.placement import Binding, BindingName, binding_key
from federation.model.reservations import PromiseCertificate
from federation.services.binding_ports import StoredBinding
from federation.services.duties import Begin
from federation.services.fleet.journal_reader import Following
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import (
    BindingChanged,
    ClusterShares,
    StoredReservations,
    nonces_by_cluster,
    owner_of,
)
from federation.services.ports import Store, Transaction
from federation.services.scheduling.commit import lock_clusters, lock_groups
from federation.services.scheduling.read import no_binding, other_uid
from federation.services.scheduling.shares import shares_of
from federation.services.scheduling.together import settle_stored_gang
from federation.services.values import HeldReservation

MAX_TRIES = 5
EXPIRED_AT_ONCE = 100
# Bindings of similar names that a NotFound names.
MAX_SIMILAR = 3

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class _LockedBinding:
    """A locked binding with the locked ledgers of the clusters where it has reservations.

    ``row`` is None if it has none. ``companions`` are changes of other bindings, which go to the
    journal together with the change of this one.
    """

    tx: Transaction
    stored: StoredBinding
    row: StoredReservations | None
    ledgers: Mapping[str, ClusterLedger]
    companions: list[BindingChanged] = field(default_factory=list)


class ReleaseService:
    """Ends and weakens promises, each binding in a transaction of its own."""

    def __init__(self, store: Store, fleet: FleetOwner, following: Following) -> None:
        self._store = store
        self._fleet = fleet
        self._following = following

    async def stop_watching(self, name: BindingName, cluster: str) -> None:
        """Drop the reservations, and the watch for pods, of a binding in a cluster that it left."""
        key = binding_key(*name)

        async def drop(locked: _LockedBinding) -> Mapping[str, ClusterLedger]:
            is_placed = any(item.name == cluster for item in locked.stored.binding.clusters)
            ledger = None if is_placed else locked.ledgers.get(cluster)
            return {cluster: ledger.released(key)} if ledger else {}

        with suppress(NotFound, Conflict):
            await self._amend(*name, "", drop)

    async def release(
        self, namespace: str, name: str, uid: str = "", clusters: Collection[str] = ()
    ) -> tuple[HeldReservation, ...]:
        """Release the binding's reservations in the clusters (empty: in all), and return them.

        Raises NotFound if it has none there, PreconditionFailed for another uid.
        """
        released: tuple[HeldReservation, ...] = ()

        async def drop(locked: _LockedBinding) -> Mapping[str, ClusterLedger]:
            nonlocal released
            names = [name for name in locked.ledgers if not clusters or name in clusters]
            self._fleet.check_known(clusters)
            if not names:
                where = f" in {', '.join(clusters)}" if clusters else ""
                raise NotFound(f"Binding {locked.stored.binding.key!r} holds nothing{where}.")
            key = locked.stored.binding.key
            released = held_in(locked.ledgers, key, names)
            return {name: locked.ledgers[name].released(key) for name in names}

        await self._amend(namespace, name, uid, drop)
        return released

    async def renew(
        self, namespace: str, name: str, uid: str = "", lease_seconds: int | None = None
    ) -> float:
        """Renew the binding's lease, and return its new end in Unix seconds.

        Without ``lease_seconds`` the lease is as long as the spec says. Raises NotFound, and
        PreconditionFailed for another uid, without a lease, or after its end.
        """
        async with self._store.transaction() as tx:
            stored = await locked_binding(tx, namespace, name, uid)
            seconds = lease_seconds or stored.binding.lease_seconds
            ends_at = (
                None
                if seconds is None
                else await tx.reservations.renew(stored.binding.key, seconds)
            )
        if ends_at is None:
            raise PreconditionFailed(
                f"Binding {stored.binding.key!r} has no lease, or it has run out: schedule it "
                "again with spec.leaseSeconds.",
                reason="NO_LEASE",
            )
        return ends_at

    async def delete(self, namespace: str, name: str, uid: str = "") -> None:
        """Delete the binding and its reservations, but not its decisions. Raises as ``release``."""

        async def forget(locked: _LockedBinding) -> Mapping[str, ClusterLedger]:
            binding = locked.stored.binding
            await locked.tx.bindings.delete(locked.stored.id)
            if binding.gang is not None:
                locked.companions += await settle_stored_gang(
                    locked.tx, (namespace, binding.gang.name)
                )
            return {name: ledger.released(binding.key) for name, ledger in locked.ledgers.items()}

        async with self._store.reading() as read:
            stored = await read.bindings.get(namespace, name)
        grouped = [stored.binding] if stored and stored.binding.gang else []
        await self._amend(namespace, name, uid, forget, deletes=True, grouped=grouped)

    async def downgrade_lost_plans(self, cluster: str, lost: Iterable[LostPlan]) -> None:
        """Downgrade the promises whose plans of nodes the cluster's agent cannot keep any more."""
        for plan in lost:
            if not self._fleet.has(cluster):
                return
            newest = self._fleet.ledger(cluster).newest(plan.binding)
            if any(item.certificate is PromiseCertificate.PLANNED for item in newest):
                namespace, _, name = plan.binding.rpartition("/")
                with suppress(Conflict):
                    await self.downgrade(namespace, name, plan.decision, cluster, plan.reason)

    def is_planned(self, key: str, decision: str, cluster: str) -> bool:
        """Tell whether this control plane still has a planned promise of a decision there."""
        newest = self._fleet.ledger(cluster).newest(key) if self._fleet.has(cluster) else []
        return any(
            item.certificate is PromiseCertificate.PLANNED and decision in item.decisions[-1:]
            for item in newest
        )

    async def downgrade(
        self, namespace: str, name: str, decision: str, cluster: str, why: str
    ) -> None:
        """Make planned promises careful, because the cluster's agent does not keep the plan.

        The decision's plan says why. Do nothing if the binding has a newer decision, or is gone.
        """
        key = binding_key(namespace, name)
        async with self._store.reading() as read:
            stored = await read.decisions.get(decision)
        plans = {plan.cluster: plan for plan in stored.plans} if stored else {}

        async def weaken(locked: _LockedBinding) -> Mapping[str, ClusterLedger]:
            ledger = locked.ledgers.get(cluster)
            if ledger is None or locked.stored.decision_id != decision:
                return {}
            newest = ledger.newest(key)
            if all(item.certificate is not PromiseCertificate.PLANNED for item in newest):
                return {}
            shares = [
                share._replace(certificate=PromiseCertificate.CAREFUL)
                if share.certificate is PromiseCertificate.PLANNED
                else share
                for share in shares_of(newest)
            ]
            nowhere = NodePlan(cluster=cluster, unplaced=sum(item.replicas for item in newest))
            plan = replace(plans.get(cluster, nowhere), claimed=False, message=why)
            await locked.tx.decisions.put_node_plans({decision: [plan]})
            return {cluster: ledger.decided(key, decision, shares)}

        try:
            is_weaker = await self._amend(namespace, name, "", weaken)
        except NotFound:
            return
        if is_weaker:
            fields = {"binding": key, "cluster": cluster, "decision": decision, "why": why}
            logger.warning("planned promise is careful now", extra={"fields": fields})

    async def expire_leases(self, begin: Begin) -> int:
        """End the promises whose leases have expired, and return the number of their bindings.

        Each binding has a transaction of its own, after the one that lists them.
        """
        async with begin() as tx:
            expired = await tx.reservations.expired(EXPIRED_AT_ONCE)
        for namespace, name in expired:
            with suppress(NotFound, Conflict):
                if await self._amend(namespace, name, "", _drop_if_expired):
                    fields = {"binding": f"{namespace}/{name}"}
                    logger.info("lease ran out", extra={"fields": fields})
        return len(expired)

    async def _amend(
        self,
        namespace: str,
        name: str,
        uid: str,
        change: Callable[[_LockedBinding], Awaitable[Mapping[str, ClusterLedger]]],
        *,
        deletes: bool = False,
        grouped: Sequence[Binding] = (),
    ) -> bool:
        """Change reservations under the locks of the binding and all clusters that have some.

        ``change`` returns the new ledgers by name of the cluster. Return whether it changed any.
        """
        clusters = frozenset(self._fleet.holdings(binding_key(namespace, name)))
        for _ in range(MAX_TRIES):
            async with self._store.transaction() as tx:
                await lock_groups(tx, grouped)
                locked = await self._lock(tx, namespace, name, uid, clusters)
                if isinstance(locked, frozenset):
                    clusters = locked
                    continue
                ledgers = await change(locked)
                amended = _amended(locked, ledgers, deletes=deletes)
                if not (ledgers or deletes):
                    return False
                await _write(tx, locked, ledgers, amended)
                await tx.journal.append([amended, *locked.companions])
            for entry in (amended, *locked.companions):
                self._fleet.apply(entry)
            return True
        raise Conflict(f"Binding {name!r} was changed by others meanwhile: try again.")

    async def _lock(
        self, tx: Transaction, namespace: str, name: str, uid: str, clusters: frozenset[str]
    ) -> _LockedBinding | frozenset[str]:
        """Lock a binding with its ledgers in the clusters.

        Return more clusters to lock instead if it has reservations elsewhere.
        """
        await lock_clusters(tx, self._fleet, self._following, clusters)
        stored = await locked_binding(tx, namespace, name, uid)
        row = await tx.reservations.of(namespace, name)
        elsewhere = {item.cluster for item in row.reservations} if row else set()
        if not elsewhere <= clusters:
            return clusters | elsewhere
        key = stored.binding.key
        ledgers = {
            name: self._fleet.ledger(name)
            for name in sorted(clusters)
            if self._fleet.has(name) and self._fleet.ledger(name).of_binding(key)
        }
        return _LockedBinding(tx=tx, stored=stored, row=row, ledgers=ledgers)


def held_in(
    ledgers: Mapping[str, ClusterLedger], key: str, clusters: Collection[str]
) -> tuple[HeldReservation, ...]:
    """Return the newest reservations of a binding in the clusters."""
    reservations = []
    for name in sorted(clusters):
        ledger = ledgers[name]
        outstanding = Counter[str]()
        for part in ledger.outstanding_of(key):
            outstanding[part.component] += part.in_cells
        for item in sorted(ledger.newest(key), key=lambda item: item.component):
            echo = ledger.echo_of(item)
            reservations.append(
                HeldReservation(
                    cluster=name,
                    component=item.component,
                    replicas=item.replicas,
                    outstanding=outstanding[item.component],
                    bound=echo.bound if echo else 0,
                    unbound=echo.unbound if echo else 0,
                    finished=item.finished,
                    certificate=item.certificate,
                    decision_id=item.decision,
                )
            )
    return tuple(reservations)


async def _drop_if_expired(locked: _LockedBinding) -> Mapping[str, ClusterLedger]:
    binding = locked.stored.binding
    if not await locked.tx.reservations.has_expired(binding.namespace, binding.name):
        return {}
    return {name: ledger.released(binding.key) for name, ledger in locked.ledgers.items()}


async def locked_binding(tx: Transaction, namespace: str, name: str, uid: str) -> StoredBinding:
    """Lock a binding until the end of the transaction.

    Raises NotFound, and PreconditionFailed for another uid.
    """
    stored = await tx.bindings.lock(namespace, name)
    if stored is None:
        raise await missing_binding(tx, namespace, name)
    if uid and uid != stored.binding.uid:
        raise other_uid(stored.binding, uid)
    return stored


async def missing_binding(read: Transaction, namespace: str, name: str) -> NotFound:
    """Return the error for a missing binding, with the bindings that may have been meant.

    These have names that continue this one, because people leave out the kind of the workload.
    They are in the same namespace, because the caller may not see another one.
    """
    after = await read.bindings.names(namespace, (namespace, name), MAX_SIMILAR)
    similar = [binding_key(*key) for key in after if key[1].startswith(f"{name}-")]
    missing = no_binding(namespace, name)
    if not similar:
        return missing
    return NotFound(f"{missing.message} Is it {' or '.join(map(repr, similar))}?")


def _amended(
    locked: _LockedBinding, ledgers: Mapping[str, ClusterLedger], *, deletes: bool
) -> BindingChanged:
    binding = locked.stored.binding
    return BindingChanged.of(
        binding,
        decision=locked.stored.decision_id,
        clusters={
            name: ClusterShares(
                version=ledger.version, shares=shares_of(ledger.newest(binding.key))
            )
            for name, ledger in ledgers.items()
        },
        deleted=deletes,
        waits=locked.stored.wait is not None and not deletes,
    )


async def _write(
    tx: Transaction,
    locked: _LockedBinding,
    ledgers: Mapping[str, ClusterLedger],
    amended: BindingChanged,
) -> None:
    binding = locked.stored.binding
    now = {**locked.ledgers, **ledgers}
    row = StoredReservations(
        namespace=binding.namespace,
        name=binding.name,
        uid=binding.uid,
        owner=owner_of(binding),
        reservations=()
        if amended.deleted
        else tuple(
            reservation for name in sorted(now) for reservation in now[name].of_binding(binding.key)
        ),
    )
    if locked.row is not None:
        await tx.reservations.put([row], {})
    if ledgers:
        await tx.journal.advance(
            {name: ledger.version for name, ledger in ledgers.items()},
            nonces_by_cluster([amended]),
        )
