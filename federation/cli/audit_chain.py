"""The audit's chain of hashes, reckoned anew on the caller's side.

Must not trust what the control plane says of it.
"""

from __future__ import annotations

from dataclasses import replace

from federation.model.audit import AuditHead, AuditRecord, chained
from federation.model.errors import PreconditionFailed

ALTERED = "AUDIT_ALTERED"


def linked(reached: AuditHead, record: AuditRecord) -> AuditHead:
    """The chain up to a record that is next in it. Raises PreconditionFailed for any other one."""
    if record.seal != reached.seal + 1:
        missing = reached.seal + 1
        raise PreconditionFailed(f"The audit was altered: {missing} is missing.", reason=ALTERED)
    if chained(reached.hash, record) != record.hash:
        raise PreconditionFailed(
            f"The audit was altered: the record with seal {record.seal} (id {record.id}) is not "
            "what was sealed.",
            reason=ALTERED,
        )
    return replace(reached, seal=record.seal, hash=record.hash)
