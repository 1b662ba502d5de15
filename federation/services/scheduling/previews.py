"""Previews: a decision shown first, and committed exactly as it was shown.

Must not decide anything at the commit: it stores what the preview said, or refuses.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from uuid import uuid4

from federation.capacity.reserve import Refused
from federation.model.errors import PreconditionFailed
from federation.model.placement import Binding
from federation.scheduler.decision import Outcome
from federation.services.fleet.journal_reader import Following
from federation.services.fleet.registry import FleetOwner
from federation.services.packed_previews import packed_preview
from federation.services.packed_traces import packed_off_loop
from federation.services.ports import (
    NewPreview,
    Peers,
    Store,
    StoredBinding,
    StoredPreview,
    Transaction,
)
from federation.services.scheduling.bindings import Scheduling
from federation.services.scheduling.commit import Committing
from federation.services.scheduling.decide import PLACED, asks_the_same
from federation.services.scheduling.recheck import is_grouped
from federation.services.scheduling.working_copy import Kept, Working
from federation.services.scheduling.write import Ready, lock_clusters, write
from federation.services.secrets import make_secret, parse_secret
from federation.services.threads import PACKING, UNDER_LOCKS
from federation.services.values import Previewed, Scheduled

PREVIEW_SECONDS = 600
MOVED = "it was placed elsewhere meanwhile"


class Previews:
    """Decisions without a commit, and their commits."""

    def __init__(
        self,
        store: Store,
        fleet: FleetOwner,
        following: Following,
        scheduling: Scheduling,
        committing: Committing,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._following = following
        self._scheduling = scheduling
        self._committing = committing

    async def preview(self, binding: Binding, *, adopt: bool, wait: bool) -> Previewed:
        """What ``Scheduling.schedule`` would decide now, and a token that commits it.

        Without a token where there is nothing to commit: where the decision would not be stored,
        and where no cluster fits. Raises what ``Scheduling.consider`` raises.
        """
        decided = await self._scheduling.consider(binding, adopt=adopt)
        record, considered = self._committing.unstored(decided), decided.considered
        is_stored = considered.known or wait or considered.is_placed
        if not is_stored or considered.verdict.decision.outcome is Outcome.NO_FIT:
            return Previewed(record=record)
        made = make_secret()
        preview = NewPreview(
            id=made.id,
            secret_hash=made.hash,
            base=considered.known,
            body=await PACKING.run(packed_preview, considered.candidate, considered.verdict),
        )
        async with self._store.transaction() as tx:
            expires_at = await tx.previews.add(preview, PREVIEW_SECONDS)
        return Previewed(record=record, token=made.token, expires_at=expires_at)

    async def commit(self, token: str, binding: Binding | None) -> Scheduled:
        """Commits what a preview showed; repeated, it answers what was committed.

        A ``binding`` must ask for what was previewed. Raises PreconditionFailed when the token is
        unknown or expired, when the binding's spec changed since, or a cluster is gone.
        """
        presented = parse_secret(token)
        async with self._store.transaction() as tx:
            preview = await tx.previews.lock(presented.id) if presented else None
            if preview is None or not presented or not presented.matches(preview.secret_hash):
                raise PreconditionFailed(
                    "The preview token is unknown or has expired: preview again.",
                    reason="PREVIEW_EXPIRED",
                )
            if binding is not None and not asks_the_same(binding, preview.binding):
                raise PreconditionFailed(
                    f"The preview token is for binding {preview.binding.key!r} as it was "
                    "previewed, not for what this request asks for.",
                    reason="PREVIEW_OF_ANOTHER_REQUEST",
                )
            if preview.decision_id:
                return await _committed(tx, preview)
            ready, working = await self._ready(tx, preview)
            written = await write(tx, [ready], await packed_off_loop([ready.verdict], UNDER_LOCKS))
            scheduled = written.answers[ready.key]
            await tx.previews.settle(preview.id, scheduled.record.id)
        self._fleet.adopt(working.snapshot, working.after, written.changes)
        return scheduled

    async def _ready(self, tx: Transaction, preview: StoredPreview) -> tuple[Ready, Working]:
        """What was shown, with the room for it taken. Raises PreconditionFailed without any."""
        candidate, decision = preview.binding, preview.verdict.decision
        if is_grouped(candidate):
            # Before anything else is locked; until the end nobody else joins the groups.
            await tx.bindings.lock_groups([candidate])
        names = {*await _held(tx, candidate), *(target.name for target in decision.clusters)}
        await lock_clusters(tx, self._fleet, self._following, names)
        known = await _base(tx, preview)
        held = await _held(tx, candidate)
        if not names.issuperset(held):
            raise _stale(preview, MOVED)
        working, id_, kept = self._committing.working(), str(uuid4()), None
        if decision.outcome in PLACED:
            if is_grouped(candidate):
                _check_groups(preview, await tx.bindings.peers(candidate))
            kept = self._kept(working, preview, known, id_, held)
        ready = Ready(
            id=id_,
            known=known,
            candidate=candidate,
            verdict=replace(preview.verdict, promises=kept.promises if kept else ()),
            kept=kept,
        )
        return ready, working

    def _kept(
        self,
        working: Working,
        preview: StoredPreview,
        known: StoredBinding | None,
        id_: str,
        held: Collection[str],
    ) -> Kept:
        candidate = preview.binding
        wish = working.wish(
            candidate,
            id_,
            preview.verdict.decision.clusters,
            asked=self._committing.asked(candidate),
            held=held,
            adopts=known is None or known.binding.clusters != candidate.clusters,
        )
        lost = self._committing.lost(working)
        ran = {each.name: each.replicas for each in candidate.clusters}
        for target in preview.verdict.decision.clusters:
            if target.name in lost and target.replicas > ran.get(target.name, 0):
                raise _stale(preview, f"cluster {target.name} {lost[target.name]}")
        taken = working.reserve(wish)
        if isinstance(taken, Refused):
            reasons = "; ".join(f"{name}: {why}" for name, why in sorted(taken.reasons.items()))
            raise _stale(preview, f"there is no room for it any more ({reasons})")
        return taken


async def _base(tx: Transaction, preview: StoredPreview) -> StoredBinding | None:
    """The binding that the preview was made for, held until the end of the transaction."""
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
    is_as_then = current.binding.resource_version == binding.resource_version
    if not is_as_then and current.binding.clusters != binding.clusters:
        raise _stale(preview, MOVED)
    return current


def _check_groups(preview: StoredPreview, peers: Peers) -> None:
    """Raises PreconditionFailed where others of its workload affinity groups moved since, so that
    it may not go where it was to go; where it is already it may stay.
    """
    there = {target.name for target in preview.binding.clusters}
    goes_to = {target.name for target in preview.verdict.decision.clusters} - there
    if any(goes_to - names for names in peers.affinity) or any(
        goes_to & names for names in peers.anti_affinity
    ):
        raise _stale(preview, "workloads of its affinity groups were placed otherwise meanwhile")


async def _held(tx: Transaction, binding: Binding) -> tuple[str, ...]:
    """Where it holds something by the store, ascending."""
    key = binding.namespace, binding.name
    holding = (await tx.reservations.holdings([key])).get(key)
    return holding.clusters if holding else ()


async def _committed(tx: Transaction, preview: StoredPreview) -> Scheduled:
    binding = preview.binding
    record = await tx.decisions.get(preview.decision_id)
    current = await tx.bindings.get(binding.namespace, binding.name)
    if record is None or current is None:
        raise _stale(preview, "it was committed, and deleted afterwards")
    superseded = current.decision_id != record.id
    return Scheduled(record=record, binding=current.binding, superseded=superseded)


def _stale(preview: StoredPreview, why: str) -> PreconditionFailed:
    return PreconditionFailed(
        f"The preview of binding {preview.binding.key!r} cannot be committed any more: {why}. "
        "Preview again.",
        reason="PREVIEW_STALE",
    )
