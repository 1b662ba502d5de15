"""What ``fedctl audit export --watch`` does while the control plane is away."""

from __future__ import annotations

from typing import Any

import pytest

from federation.cli import audit
from federation.codec.audit import head_to_message, record_to_message
from federation.model.audit import AuditHead, AuditRecord, sealed
from federation.model.errors import DeadlineMissed, FederationError, Unavailable
from federation.v1 import access_pb2


@pytest.mark.parametrize("error", [Unavailable("it stops"), DeadlineMissed("it is slow")])
async def test_a_control_plane_that_is_away_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, error: FederationError
) -> None:
    monkeypatch.setattr(audit, "POLL_SECONDS", 0.0)
    (record,), head = sealed([AuditRecord(id=1, actor="ann", method="Some/Thing")], AuditHead())
    page = access_pb2.GetAuditChainResponse(
        records=[record_to_message(record)], head=head_to_message(head)
    )
    answers: list[Any] = [error, page]

    class Api:
        async def get_audit_chain(self, _: int) -> Any:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    api: Any = Api()
    told = audit._records(api, last=None, watch=True)
    assert [each.seal for each in await anext(told)] == [1]
    await told.aclose()
    answers[:] = [error]
    with pytest.raises(type(error)):
        await anext(audit._records(api, last=None, watch=False))
