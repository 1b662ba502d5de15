"""The queue for callers: lists of it, and suspending, resuming and rescheduling bindings.

Must not decide anything: the pipeline does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from federation.model.errors import NotFound, PreconditionFailed
from federation.model.placement import BindingName, binding_key
from federation.model.waiting import SUSPENDED, Wait, WaitState
from federation.services.binding_ports import (
    GangSummary,
    NewWait,
    QueuedBinding,
    QueuePlace,
    StoredBinding,
)
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import BindingChanged, Position
from federation.services.ports import Store, Transaction
from federation.services.scheduling.commit import lock_groups
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.scheduling.release import locked_binding, missing_binding
from federation.services.scheduling.together import settle_stored_gang
from federation.services.values import Scheduled


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePage:
    """Waiting bindings in the order in which they are tried; ``is_last``: no other follows.

    A reader that follows the journal from ``position`` on misses no change.
    """

    bindings: Sequence[QueuedBinding]
    is_last: bool
    position: Position


class Queueing:
    """Use cases of callers with the queue."""

    def __init__(self, store: Store, fleet: FleetOwner, pipeline: DecisionPipeline) -> None:
        self._store = store
        self._fleet = fleet
        self._pipeline = pipeline

    async def list(
        self,
        namespace: str,
        priority: int | None,
        after: QueuePlace | None,
        limit: int,
        *,
        among: Collection[str] = (),
    ) -> QueuePage:
        """Return bindings behind ``after``, of one namespace and one priority, if given.

        ``among`` are patterns of namespaces, as in ``Scope``; none: all.
        """
        async with self._store.reading() as read:
            position = await read.journal.position()
            waiting = await read.waiting.page(namespace, priority, after, limit + 1, among=among)
        return QueuePage(bindings=waiting[:limit], is_last=len(waiting) <= limit, position=position)

    async def gangs(
        self,
        namespace: str,
        after: BindingName | None,
        limit: int,
        *,
        among: Collection[str] = (),
    ) -> Sequence[GangSummary]:
        """Return gangs behind ``after``, by namespace and name; other parameters as in ``list``."""
        async with self._store.reading() as read:
            return await read.waiting.gangs(namespace, after, limit, among=among)

    async def gang(self, namespace: str, name: str) -> Sequence[StoredBinding]:
        """Return the members of a gang by name. Raises NotFound."""
        async with self._store.reading() as read:
            members = await read.bindings.of_gang(namespace, name)
        if not members:
            raise NotFound(f"There is no gang {binding_key(namespace, name)!r}.")
        return members

    async def suspend(self, namespace: str, name: str, uid: str = "") -> Wait:
        """Stop deciding a binding until it is resumed; running replicas stay.

        Raises NotFound, and PreconditionFailed for another uid.
        """
        async with self._store.transaction() as tx:
            stored = await _locked(tx, namespace, name, uid)
            if stored.wait is not None and stored.wait.is_suspended:
                return stored.wait
            await tx.waiting.gate(_suspended(stored))
            wait, changes = await _settled(tx, stored)
        self._apply(changes)
        if wait is None:
            raise LookupError("a binding that was just suspended does not wait")
        return wait

    async def resume(self, namespace: str, name: str, uid: str = "") -> Wait | None:
        """Try a binding again that waited before; None: it waits for nothing.

        Raises NotFound, and PreconditionFailed for another uid, or when it was not suspended.
        """
        async with self._store.transaction() as tx:
            stored = await _locked(tx, namespace, name, uid)
            if stored.wait is None or not stored.wait.is_suspended:
                raise PreconditionFailed(
                    f"Binding {stored.binding.key!r} is not suspended.", reason="NOT_SUSPENDED"
                )
            if stored.wait.attempts:
                await tx.waiting.open(stored.id)
            else:
                # It was placed when it was suspended.
                await tx.waiting.remove([stored.id])
            wait, changes = await _settled(tx, stored)
        self._apply(changes)
        return wait

    def _apply(self, changes: Sequence[BindingChanged]) -> None:
        for change in changes:
            self._fleet.apply(change)

    async def reschedule(self, namespace: str, name: str, uid: str = "") -> Scheduled:
        """Divide all replicas of a binding anew, as ``DecisionPipeline.reschedule`` does."""
        try:
            return await self._pipeline.reschedule((namespace, name), uid)
        except NotFound:
            async with self._store.reading() as read:
                raise await missing_binding(read, namespace, name) from None


def _suspended(stored: StoredBinding) -> NewWait:
    binding = stored.binding
    return NewWait(
        binding_id=stored.id,
        namespace=binding.namespace,
        name=binding.name,
        priority=binding.priority,
        remainder=0,
        short_of="",
        state=WaitState.GATED,
        gate=SUSPENDED,
    )


async def _locked(tx: Transaction, namespace: str, name: str, uid: str) -> StoredBinding:
    """Lock the gang of a binding, and then the binding as ``locked_binding`` does."""
    stored = await tx.bindings.get(namespace, name)
    await lock_groups(tx, [stored.binding] if stored else [])
    return await locked_binding(tx, namespace, name, uid)


async def _settled(
    tx: Transaction, stored: StoredBinding
) -> tuple[Wait | None, Sequence[BindingChanged]]:
    """Announce a binding and its gang as they wait now; return its wait and the changes."""
    binding, gang_changes = stored.binding, list[BindingChanged]()
    key = binding.namespace, binding.name
    await tx.bindings.touch(stored.id)
    if binding.gang is not None:
        gang_changes = await settle_stored_gang(
            tx, (binding.namespace, binding.gang.name), besides=[key]
        )
    current = await tx.bindings.get(*key)
    wait = current.wait if current else None
    own = BindingChanged.of(binding, decision=stored.decision_id, waits=wait is not None)
    changes = [own, *gang_changes]
    await tx.journal.append(changes)
    return wait, changes
