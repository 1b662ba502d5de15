"""Previews: a decision shown first, and committed exactly as it was shown.

Must not decide anything at the commit: it stores what the preview said, or refuses.
"""

from __future__ import annotations

from federation.model.errors import PreconditionFailed
from federation.model.placement import Binding
from federation.services.deciding import Considered, asks_the_same
from federation.services.fleet import FleetOwner
from federation.services.ports import NewPreview, Store, StoredBinding, StoredPreview, Transaction
from federation.services.scheduling import Scheduling, settle
from federation.services.secrets import make_secret, parse_secret
from federation.services.values import Previewed, Scheduled

PREVIEW_SECONDS = 600


class Previews:
    """Decisions without a commit, and their commits."""

    def __init__(self, store: Store, fleet: FleetOwner, scheduling: Scheduling) -> None:
        self._store = store
        self._fleet = fleet
        self._scheduling = scheduling

    async def preview(self, binding: Binding, *, adopt: bool, wait: bool) -> Previewed:
        """What ``Scheduling.schedule`` would decide now, and a token that commits it.

        Without a token where that would store nothing. Raises what ``Scheduling.consider`` raises.
        """
        considered = await self._scheduling.consider(binding, adopt=adopt)
        record = self._scheduling.unstored(considered)
        if not (considered.known or wait or considered.is_placed):
            return Previewed(record=record)
        made = make_secret()
        preview = NewPreview(
            id=made.id,
            secret_hash=made.hash,
            base=considered.known,
            binding=considered.candidate,
            verdict=considered.verdict,
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
            self._check_clusters(preview)
            current = await _base(tx, preview)
            considered = Considered(
                known=current, candidate=preview.binding, verdict=preview.verdict
            )
            scheduled = await settle(tx, current, considered)
            await tx.previews.settle(preview.id, scheduled.record.id)
            return scheduled

    def _check_clusters(self, preview: StoredPreview) -> None:
        names = [target.name for target in preview.verdict.decision.clusters]
        gone = [name for name in names if name not in self._fleet.snapshot.positions]
        if gone:
            raise _stale(preview, f"cluster {', '.join(gone)} is gone")


async def _base(tx: Transaction, preview: StoredPreview) -> StoredBinding:
    """The binding that the preview was made for, held until the end of the transaction."""
    binding = preview.binding
    if preview.binding_id is None:
        added = await tx.bindings.add(binding)
        if added is None:
            raise _stale(preview, "it was made meanwhile")
        return added
    current = await tx.bindings.lock(binding.namespace, binding.name)
    if current is None or current.id != preview.binding_id:
        raise _stale(preview, "it was deleted meanwhile")
    if current.binding.generation != preview.binding_generation:
        raise _stale(preview, "it was changed meanwhile")
    return current


async def _committed(tx: Transaction, preview: StoredPreview) -> Scheduled:
    binding = preview.binding
    record = await tx.decisions.get(preview.decision_id)
    current = await tx.bindings.get(binding.namespace, binding.name)
    if record is None or current is None:
        raise _stale(preview, "it was committed, and deleted afterwards")
    return Scheduled(record=record, binding=current.binding)


def _stale(preview: StoredPreview, why: str) -> PreconditionFailed:
    return PreconditionFailed(
        f"The preview of binding {preview.binding.key!r} cannot be committed any more: {why}. "
        "Preview again.",
        reason="PREVIEW_STALE",
    )
