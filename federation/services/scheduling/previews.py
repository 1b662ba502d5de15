"""Previews: decisions that are shown first, and committed exactly as shown.

A commit must not decide anything: it stores the decision of the preview, or refuses.
"""

from __future__ import annotations

from dataclasses import replace

from federation.model.access import Scope
from federation.model.errors import PermissionRefused, PreconditionFailed
from federation.model.placement import Binding, gang_to_join, is_grouped
from federation.scheduler.decision import Outcome
from federation.services.binding_ports import Peers, StoredBinding
from federation.services.decision_ports import NewPreview, StoredPreview
from federation.services.fleet.journal_reader import Following
from federation.services.fleet.registry import FleetOwner
from federation.services.journal_ports import Holding
from federation.services.packed_traces import packed_off_loop, packed_preview
from federation.services.ports import Clock, Store, Transaction
from federation.services.scheduling.answer import unstored_record
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.bindings import Scheduling
from federation.services.scheduling.commit import (
    check_departed,
    departed_clusters,
    lock_clusters,
    lock_groups,
    write,
)
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.scheduling.quotas import read_quotas, within_quotas
from federation.services.scheduling.read import asks_the_same, check_version
from federation.services.scheduling.verdicts import request_room, reserve
from federation.services.scheduling.working_copy import WorkingCopy
from federation.services.secrets import make_secret, parse_secret
from federation.services.threads import PACKING, UNDER_LOCKS
from federation.services.values import Previewed, Scheduled

PREVIEW_SECONDS = 600
MOVED = "it was placed elsewhere meanwhile"


class Previews:
    """Makes and commits previews."""

    def __init__(
        self,
        store: Store,
        fleet: FleetOwner,
        following: Following,
        scheduling: Scheduling,
        pipeline: DecisionPipeline,
        clock: Clock,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._following = following
        self._scheduling = scheduling
        self._pipeline = pipeline
        self._clock = clock

    async def preview(self, binding: Binding, *, adopt: bool, wait: bool) -> Previewed:
        """Return the decision that ``Scheduling.schedule`` would make, and a token to commit it.

        There is no token if the decision would not be stored, or if no cluster fits. Nor is there
        one if plugins keep something for decisions or hear of them, if victims would lose
        replicas, or if the binding is placed with a gang. Raises as ``Scheduling.consider`` does.
        """
        attempt = await self._scheduling.consider(binding, adopt=adopt, wait=wait)
        record = unstored_record(attempt, self._clock.now())
        if not attempt.is_stored or record.decision.outcome is Outcome.NO_FIT:
            return Previewed(record=record)
        if self._pipeline.profile_of(binding).keeps_or_hears:
            # Plugins keep something only for decisions that are committed at once.
            return Previewed(record=record)
        if attempt.result.losses:
            # Losses of victims are committed together with the preempting decision.
            return Previewed(record=record)
        if gang_to_join(attempt.candidate) is not None:
            # The record shows the binding alone, but a gang is placed as a whole or not at all.
            return Previewed(record=record)
        secret = make_secret()
        preview = NewPreview(
            id=secret.id,
            secret_hash=secret.hash,
            base=attempt.facts.stored,
            body=await PACKING.run(
                packed_preview, attempt.decided, attempt.result.verdict, wait=attempt.wait
            ),
        )
        async with self._store.transaction() as tx:
            expires_at = await tx.previews.add(preview, PREVIEW_SECONDS)
        return Previewed(record=record, token=secret.token, expires_at=expires_at)

    async def commit(self, token: str, binding: Binding | None, scope: Scope) -> Scheduled:
        """Commit the decision of a preview; a repeated commit returns the same decision.

        A ``binding`` must be the previewed one. Raises PreconditionFailed if the token is unknown
        or expired, if the binding's spec changed since, or if a cluster is gone. Raises
        PermissionRefused if the binding's namespace is not within the ``scope``.
        """
        presented = parse_secret(token)
        async with self._store.transaction() as tx:
            preview = await tx.previews.lock(presented.id) if presented else None
            if preview is None or not presented or not presented.matches(preview.secret_hash):
                raise PreconditionFailed(
                    "The preview token is unknown or has expired: preview again.",
                    reason="PREVIEW_EXPIRED",
                )
            if not scope.sees_namespace(preview.binding.namespace):
                raise PermissionRefused("the preview is of a namespace that is not its caller's")
            if binding is not None and not asks_the_same(binding, preview.binding):
                raise PreconditionFailed(
                    f"The preview token is for binding {preview.binding.key!r} as it was "
                    "previewed, not for what this request asks for.",
                    reason="PREVIEW_OF_ANOTHER_REQUEST",
                )
            if preview.decision_id:
                return await _committed(tx, preview)
            attempt, working = await self._reserved(tx, preview)
            if binding is not None:
                check_version(binding, attempt.facts.stored, self._following.history)
            traces = await packed_off_loop([attempt.result.verdict], UNDER_LOCKS)
            _, changes = await write(tx, [attempt], traces)
            await tx.previews.settle(preview.id, attempt.id)
        self._fleet.adopt(working.snapshot, working.after_commit, changes)
        return attempt.scheduled

    async def _reserved(
        self, tx: Transaction, preview: StoredPreview
    ) -> tuple[Attempt, WorkingCopy]:
        """Return the previewed attempt with its capacity taken in the returned working copy.

        Raises PreconditionFailed if the capacity, or anything else that was shown, has changed.
        """
        attempt = Attempt(binding=preview.binding, wait=preview.wait)
        candidate = attempt.candidate
        attempt.result.verdict = replace(preview.verdict, promises=())
        # Group locks come first in the order of locks. No other binding joins the groups now.
        await lock_groups(tx, [candidate])
        names = {target.name for target in preview.verdict.decision.clusters}
        names.update((await _holding(tx, candidate)).clusters)
        await lock_clusters(tx, self._fleet, self._following, names)
        attempt.facts.stored = await _base(tx, preview)
        attempt.facts.holding = await _holding(tx, candidate)
        if not names.issuperset(attempt.facts.holding.clusters):
            raise _stale(preview, MOVED)
        working = self._pipeline.working()
        await check_departed(tx, departed_clusters([attempt], working))
        if attempt.is_placed:
            if is_grouped(candidate):
                _check_groups(preview, await tx.bindings.peers(candidate))
            # A decision over thousands of clusters would block the event loop.
            await UNDER_LOCKS.run(self._reserve, working, attempt, preview)
            await read_quotas(tx, [attempt])
            if not await within_quotas(tx, [attempt]):
                raise _stale(preview, "others took of the quota of its namespace meanwhile")
        return attempt, working

    def _reserve(self, working: WorkingCopy, attempt: Attempt, preview: StoredPreview) -> None:
        stored, candidate = attempt.facts.stored, attempt.candidate
        attempt.adopt = stored is None or stored.binding.clusters != candidate.clusters
        closed = self._pipeline.closed(working)
        ran = {target.name: target.replicas for target in candidate.clusters}
        for target in attempt.decision.clusters:
            if target.name in closed and target.replicas > ran.get(target.name, 0):
                raise _stale(preview, f"cluster {target.name} {closed[target.name]}")
        # A new request would get a second look, and so do the shares that were shown.
        attempt.result.is_refined = True
        certificate = candidate.certificate or self._pipeline.profile_of(candidate).certificate
        request_room(working, attempt, certificate)
        refused = reserve(working, attempt)
        if refused is not None:
            reasons = "; ".join(f"{name}: {why}" for name, why in sorted(refused.reasons.items()))
            raise _stale(preview, f"there is no room for it any more ({reasons})")
        # Computed in this thread, because the event loop uses it.
        _ = working.after_commit


async def _base(tx: Transaction, preview: StoredPreview) -> StoredBinding | None:
    """Lock the binding of the preview until the end of the transaction, and return it."""
    binding = preview.binding
    if preview.binding_id is None:
        if await tx.bindings.get(binding.namespace, binding.name) is not None:
            raise _stale(preview, "it was made meanwhile")
        return None
    current = await tx.bindings.lock(binding.namespace, binding.name)
    if current is None or current.id != preview.binding_id:
        raise _stale(preview, "it was deleted meanwhile")
    if current.binding.generation != preview.binding_generation:
        raise _stale(preview, "it was changed meanwhile")
    if current.wait is not None and current.wait.is_suspended:
        raise _stale(preview, "it was suspended meanwhile")
    is_as_then = current.binding.resource_version == binding.resource_version
    if not is_as_then and current.binding.clusters != binding.clusters:
        raise _stale(preview, MOVED)
    return current


def _check_groups(preview: StoredPreview, peers: Peers) -> None:
    """Check that workload affinity groups still allow the clusters that the binding enters.

    Raises PreconditionFailed otherwise. The binding may stay in its present clusters.
    """
    present = {target.name for target in preview.binding.clusters}
    entered = {target.name for target in preview.verdict.decision.clusters} - present
    if any(entered - names for names in peers.affinity) or any(
        entered & names for names in peers.anti_affinity
    ):
        raise _stale(preview, "workloads of its affinity groups were placed otherwise meanwhile")


async def _holding(tx: Transaction, binding: Binding) -> Holding:
    """Return the clusters where the binding has reservations in the store."""
    key = binding.namespace, binding.name
    return (await tx.reservations.holdings([key])).get(key, Holding())


async def _committed(tx: Transaction, preview: StoredPreview) -> Scheduled:
    binding = preview.binding
    packed = await tx.decisions.get(preview.decision_id)
    current = await tx.bindings.get(binding.namespace, binding.name)
    if packed is None or current is None:
        raise _stale(preview, "it was committed, and deleted afterwards")
    record = await UNDER_LOCKS.run(packed.unpacked)
    superseded = current.decision_id != record.id
    return Scheduled(
        record=record,
        binding=current.binding,
        queued=current.wait is not None,
        superseded=superseded,
    )


def _stale(preview: StoredPreview, why: str) -> PreconditionFailed:
    return PreconditionFailed(
        f"The preview of binding {preview.binding.key!r} cannot be committed any more: {why}. "
        "Preview again.",
        reason="PREVIEW_STALE",
    )
