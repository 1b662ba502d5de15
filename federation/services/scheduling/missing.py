"""Bindings that are not there: what is said of them, and which ones may have been meant.

Must not name what is in another namespace than the one that was asked about.
"""

from __future__ import annotations

from typing import Final

from federation.model.errors import NotFound
from federation.model.placement import binding_key
from federation.services.ports import Transaction
from federation.services.scheduling.drafts import no_binding

MOST_NAMED: Final = 3


async def missing_binding(read: Transaction, namespace: str, name: str) -> NotFound:
    """With those whose names go on after this one: of a workload the kind is mostly left out."""
    after = await read.bindings.names(namespace, (namespace, name), MOST_NAMED)
    alike = [binding_key(*each) for each in after if each[1].startswith(f"{name}-")]
    missing = no_binding(namespace, name)
    if not alike:
        return missing
    return NotFound(f"{missing.message} Is it {' or '.join(map(repr, alike))}?")
