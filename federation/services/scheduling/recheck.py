"""What decisions were made on, looked at again under locks: bindings, and those they go with.

Must not decide: what was changed meanwhile is left out, for the caller to decide again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from federation.model.placement import Binding
from federation.services.ports import StoredBinding, Transaction
from federation.services.scheduling.drafts import Decided, Draft
from federation.services.scheduling.write import Key


async def lock_groups(tx: Transaction, decided: Sequence[Decided]) -> None:
    """Until the transaction ends nobody else commits bindings of their workload affinity groups.

    To be called before anything else is locked.
    """
    grouped = [each.draft.candidate for each in decided if is_grouped(each.draft.candidate)]
    if grouped:
        await tx.bindings.lock_groups(grouped)


async def unchanged(tx: Transaction, decided: Sequence[Decided]) -> list[Decided]:
    """Those whose bindings, and whose groups, are as they were read; held until the end of the
    transaction.
    """
    keys = [each.key for each in decided if each.draft.known is not None]
    current = await tx.bindings.lock_all(keys) if keys else {}
    return [
        each
        for each in decided
        if _is_as_read(each.draft, current)
        and (
            not is_grouped(each.draft.candidate)
            or await tx.bindings.peers(each.draft.candidate) == each.draft.peers
        )
    ]


def is_grouped(binding: Binding) -> bool:
    """Whether it goes with other bindings, or keeps away from them."""
    placement = binding.placement
    return bool(placement.workload_affinity_key or placement.workload_anti_affinity_key)


def _is_as_read(draft: Draft, current: Mapping[Key, StoredBinding]) -> bool:
    known = draft.known
    if known is None:
        return True
    now = current.get(draft.key)
    return (
        now is not None
        and now.id == known.id
        and now.binding.resource_version == known.binding.resource_version
    )
