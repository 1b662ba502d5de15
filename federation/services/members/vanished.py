"""Bindings of a cluster that is deleted or replaced: they are there no more, and are asked again.

Must not decide where they go: whoever keeps the queue has that done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from federation.model.placement import Binding, BindingName
from federation.model.waiting import SUSPENDED, WaitState
from federation.services.binding_ports import StoredBinding
from federation.services.journal import BindingChanged
from federation.services.ports import Transaction
from federation.services.waiting_ports import NewWait

BINDINGS_AT_ONCE: Final = 100


async def leave_vanished(tx: Transaction, cluster: str, why: str) -> list[BindingChanged]:
    """Take a cluster out of all placements; those bindings wait. Return what everybody is told.

    The ledger of the cluster is locked: nobody is placed there meanwhile. ``why`` is for people.
    """
    changes: list[BindingChanged] = []
    after: BindingName | None = None
    while True:
        page = await tx.failover.in_clusters([cluster], after, BINDINGS_AT_ONCE, is_strict=True)
        changes += await _left(tx, cluster, why, page)
        if len(page) < BINDINGS_AT_ONCE:
            return changes
        after = page[-1].namespace, page[-1].name


async def _left(
    tx: Transaction, cluster: str, why: str, page: Sequence[Binding]
) -> list[BindingChanged]:
    if not page:
        return []
    current = await tx.bindings.lock_all([(each.namespace, each.name) for each in page])
    stored = [each for each in current.values() if _share(each, cluster) is not None]
    await tx.failover.leave(cluster, [each.id for each in stored])
    await tx.waiting.put([_new_wait(each, cluster, why) for each in stored])
    return [
        BindingChanged.of(_without(each.binding, cluster), decision=each.decision_id, waits=True)
        for each in stored
    ]


def _share(stored: StoredBinding, cluster: str) -> int | None:
    """Return its replicas there, None where it is not there."""
    shares = {each.name: each.replicas for each in stored.binding.clusters}
    return shares.get(cluster)


def _without(binding: Binding, cluster: str) -> Binding:
    clusters = tuple(each for each in binding.clusters if each.name != cluster)
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
