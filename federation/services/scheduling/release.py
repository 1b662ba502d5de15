"""What ends or weakens promises outside of decisions: release, leases, deletion, downgrades.

Must not promise anything: whatever is done here leaves at least as much room as there was.
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
from federation.services.scheduling.drafts import other_uid
from federation.services.scheduling.gangs import settle_gang
from federation.services.scheduling.missing import missing_binding
from federation.services.scheduling.shares import shares_of
from federation.services.values import HeldReservation

MAX_TRIES = 5
EXPIRED_AT_ONCE = 100

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class _Held:
    """A binding and what it holds, all of it locked; ``row`` is None where it holds nothing. What
    changes for ``others`` is told with what changes for it.
    """

    tx: Transaction
    binding: StoredBinding
    row: StoredReservations | None
    ledgers: Mapping[str, ClusterLedger]
    others: list[BindingChanged] = field(default_factory=list)


class ReleaseService:
    """Ends and weakens promises. Each call is one transaction."""

    def __init__(self, store: Store, fleet: FleetOwner, following: Following) -> None:
        self._store = store
        self._fleet = fleet
        self._following = following

    async def look_no_more(self, name: BindingName, cluster: str) -> None:
        """Nothing is kept or to be seen any more of a binding in a cluster where it is not."""
        key = binding_key(*name)

        async def let_go(held: _Held) -> Mapping[str, ClusterLedger]:
            is_there = any(each.name == cluster for each in held.binding.binding.clusters)
            ledger = None if is_there else held.ledgers.get(cluster)
            return {cluster: ledger.released(key)} if ledger else {}

        with suppress(NotFound, Conflict):
            await self._amend(*name, "", let_go)

    async def release(
        self, namespace: str, name: str, uid: str = "", clusters: Collection[str] = ()
    ) -> tuple[HeldReservation, ...]:
        """What the binding held in the clusters (none: in all), and holds no more.

        Raises NotFound where it holds nothing there, PreconditionFailed for another uid.
        """
        held_before: tuple[HeldReservation, ...] = ()

        async def let_go(held: _Held) -> Mapping[str, ClusterLedger]:
            nonlocal held_before
            wanted = [c for c in held.ledgers if not clusters or c in clusters]
            self._fleet.check_known(clusters)
            if not wanted:
                where = f" in {', '.join(clusters)}" if clusters else ""
                raise NotFound(f"Binding {held.binding.binding.key!r} holds nothing{where}.")
            key = held.binding.binding.key
            held_before = held_in(held.ledgers, key, wanted)
            return {name: held.ledgers[name].released(key) for name in wanted}

        await self._amend(namespace, name, uid, let_go)
        return held_before

    async def renew(
        self, namespace: str, name: str, uid: str = "", lease_seconds: int | None = None
    ) -> float:
        """When the binding's lease ends now, in Unix seconds; None: as long as its spec says.

        Raises NotFound, and PreconditionFailed for another uid, without a lease, or with one that
        has run out.
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
        """The binding and what it holds; its decisions stay. Raises as ``release`` does."""

        async def forget(held: _Held) -> Mapping[str, ClusterLedger]:
            binding = held.binding.binding
            await held.tx.bindings.delete(held.binding.id)
            if binding.gang is not None:
                held.others += await settle_gang(held.tx, (namespace, binding.gang.name))
            return {name: ledger.released(binding.key) for name, ledger in held.ledgers.items()}

        async with self._store.reading() as read:
            known = await read.bindings.get(namespace, name)
        grouped = [known.binding] if known and known.binding.gang else []
        await self._amend(namespace, name, uid, forget, deletes=True, grouped=grouped)

    async def lose_plans(self, cluster: str, lost: Iterable[LostPlan]) -> None:
        """Plans that the cluster's agent cannot keep any more, by what it was told last."""
        for each in lost:
            if not self._fleet.has(cluster):
                return
            newest = self._fleet.ledger(cluster).newest(each.binding)
            if any(one.certificate is PromiseCertificate.PLANNED for one in newest):
                namespace, _, name = each.binding.rpartition("/")
                with suppress(Conflict):
                    await self.downgrade(namespace, name, each.decision, cluster, each.reason)

    def is_planned(self, key: str, decision: str, cluster: str) -> bool:
        """Whether what a decision promised by plan there still stands, as is known here."""
        held = self._fleet.ledger(cluster).newest(key) if self._fleet.has(cluster) else []
        return any(
            each.certificate is PromiseCertificate.PLANNED and decision in each.decisions[-1:]
            for each in held
        )

    async def downgrade(
        self, namespace: str, name: str, decision: str, cluster: str, why: str
    ) -> None:
        """A plan that the cluster's agent does not keep: its promises are careful from now on.

        The decision's plan says why. Nothing happens when the binding was decided again meanwhile,
        or is gone.
        """
        key = binding_key(namespace, name)
        async with self._store.reading() as read:
            stored = await read.decisions.get(decision)
        plans = {plan.cluster: plan for plan in stored.plans} if stored else {}

        async def weaken(held: _Held) -> Mapping[str, ClusterLedger]:
            ledger = held.ledgers.get(cluster)
            if ledger is None or held.binding.decision_id != decision:
                return {}
            newest = ledger.newest(key)
            if all(each.certificate is not PromiseCertificate.PLANNED for each in newest):
                return {}
            shares = [
                each._replace(certificate=PromiseCertificate.CAREFUL)
                if each.certificate is PromiseCertificate.PLANNED
                else each
                for each in shares_of(newest)
            ]
            nowhere = NodePlan(cluster=cluster, unplaced=sum(each.replicas for each in newest))
            plan = replace(plans.get(cluster, nowhere), claimed=False, message=why)
            await held.tx.decisions.put_node_plans({decision: [plan]})
            return {cluster: ledger.decided(key, decision, shares)}

        try:
            is_weaker = await self._amend(namespace, name, "", weaken)
        except NotFound:
            return
        if is_weaker:
            fields = {"binding": key, "cluster": cluster, "decision": decision, "why": why}
            logger.warning("planned promise is careful now", extra={"fields": fields})

    async def expire_leases(self, begin: Begin) -> int:
        """End the promises whose leases have run out; how many bindings had any.

        Each is ended in a transaction of its own, once that which finds them is over.
        """
        async with begin() as tx:
            expired = await tx.reservations.expired(EXPIRED_AT_ONCE)
        for namespace, name in expired:
            with suppress(NotFound, Conflict):
                if await self._amend(namespace, name, "", _let_go_when_expired):
                    fields = {"binding": f"{namespace}/{name}"}
                    logger.info("lease ran out", extra={"fields": fields})
        return len(expired)

    async def _amend(
        self,
        namespace: str,
        name: str,
        uid: str,
        change: Callable[[_Held], Awaitable[Mapping[str, ClusterLedger]]],
        *,
        deletes: bool = False,
        grouped: Sequence[Binding] = (),
    ) -> bool:
        """Change what a binding holds, under the locks of all clusters where it holds something.

        Whether anything was changed.
        """
        clusters = frozenset(self._fleet.holdings(binding_key(namespace, name)))
        for _ in range(MAX_TRIES):
            async with self._store.transaction() as tx:
                await lock_groups(tx, grouped)
                held = await self._hold(tx, namespace, name, uid, clusters)
                if isinstance(held, frozenset):
                    clusters = held
                    continue
                ledgers = await change(held)
                amended = _amended(held, ledgers, deletes=deletes)
                if not (ledgers or deletes):
                    return False
                await _write(tx, held, ledgers, amended)
                await tx.journal.append([amended, *held.others])
            for each in (amended, *held.others):
                self._fleet.apply(each)
            return True
        raise Conflict(f"Binding {name!r} was changed by others meanwhile: try again.")

    async def _hold(
        self, tx: Transaction, namespace: str, name: str, uid: str, clusters: frozenset[str]
    ) -> _Held | frozenset[str]:
        """The binding with all that it holds; other clusters, if it holds something elsewhere."""
        await lock_clusters(tx, self._fleet, self._following, clusters)
        binding = await locked_binding(tx, namespace, name, uid)
        row = await tx.reservations.of(namespace, name)
        elsewhere = {each.cluster for each in row.reservations} if row else set()
        if not elsewhere <= clusters:
            return clusters | elsewhere
        key = binding.binding.key
        ledgers = {
            each: self._fleet.ledger(each)
            for each in sorted(clusters)
            if self._fleet.has(each) and self._fleet.ledger(each).of_binding(key)
        }
        return _Held(tx=tx, binding=binding, row=row, ledgers=ledgers)


def held_in(
    ledgers: Mapping[str, ClusterLedger], key: str, clusters: Collection[str]
) -> tuple[HeldReservation, ...]:
    """What a binding holds in the clusters, older shapes left out."""
    found = []
    for name in sorted(clusters):
        ledger = ledgers[name]
        outstanding = Counter[str]()
        for part in ledger.outstanding_of(key):
            outstanding[part.component] += part.in_cells
        for each in sorted(ledger.newest(key), key=lambda one: one.component):
            echo = ledger.echo_of(each)
            found.append(
                HeldReservation(
                    cluster=name,
                    component=each.component,
                    replicas=each.replicas,
                    outstanding=outstanding[each.component],
                    bound=echo.bound if echo else 0,
                    unbound=echo.unbound if echo else 0,
                    finished=each.finished,
                    certificate=each.certificate,
                    decision_id=each.decision,
                )
            )
    return tuple(found)


async def _let_go_when_expired(held: _Held) -> Mapping[str, ClusterLedger]:
    binding = held.binding.binding
    if not await held.tx.reservations.has_expired(binding.namespace, binding.name):
        return {}
    return {name: ledger.released(binding.key) for name, ledger in held.ledgers.items()}


async def locked_binding(tx: Transaction, namespace: str, name: str, uid: str) -> StoredBinding:
    """Held until the end of the transaction. Raises NotFound, and PreconditionFailed by the uid."""
    stored = await tx.bindings.lock(namespace, name)
    if stored is None:
        raise await missing_binding(tx, namespace, name)
    if uid and uid != stored.binding.uid:
        raise other_uid(stored.binding, uid)
    return stored


def _amended(held: _Held, ledgers: Mapping[str, ClusterLedger], *, deletes: bool) -> BindingChanged:
    binding = held.binding.binding
    return BindingChanged.of(
        binding,
        decision=held.binding.decision_id,
        clusters={
            name: ClusterShares(
                version=ledger.version, shares=shares_of(ledger.newest(binding.key))
            )
            for name, ledger in ledgers.items()
        },
        deleted=deletes,
        waits=held.binding.wait is not None and not deletes,
    )


async def _write(
    tx: Transaction,
    held: _Held,
    ledgers: Mapping[str, ClusterLedger],
    amended: BindingChanged,
) -> None:
    binding = held.binding.binding
    now = {**held.ledgers, **ledgers}
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
    if held.row is not None:
        await tx.reservations.put([row], {})
    if ledgers:
        await tx.journal.advance(
            {name: ledger.version for name, ledger in ledgers.items()},
            nonces_by_cluster([amended]),
        )
