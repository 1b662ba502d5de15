"""Lines that are logged while something is decided name the decision, and no others do."""

from __future__ import annotations

import logging
from typing import Any

import grpc.aio
import pytest

from federation.model.access import Role, Scope
from federation.rpc import guards
from federation.runtime.log_fields import work_fields
from lab.control_planes import Plane, report
from tests.api.calls import binding


@pytest.mark.expected_errors("unexpected error")
async def test_an_error_after_a_decision_names_it(
    api: Plane, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    about, answer_to = [], guards.answer_to

    async def failing(*_: object) -> None:
        raise RuntimeError

    def told(error: Exception, method: str, scope: Scope) -> Any:
        about.append(dict(work_fields()))
        return answer_to(error, method, scope)

    # Only of who may not see everything is the answer looked through.
    caller = api.caller(await api.token(Role.SCHEDULER, "shop"))
    with caplog.at_level(logging.DEBUG, "federation"):
        async with api.connected("member1", report=report()):
            monkeypatch.setattr(guards, "as_seen", failing)
            monkeypatch.setattr(guards, "answer_to", told)
            with pytest.raises(grpc.aio.AioRpcError):
                await caller.ask("Schedule", binding=binding("named"))
    (named,) = about
    (told_of,) = [vars(each)["fields"] for each in caplog.records if each.message == "decision"]
    assert named == {"decision": told_of["decision"], "binding": "shop/named"}
    assert told_of["result"] == "scheduled"
    # What is asked for afterwards is not about it.
    with pytest.raises(grpc.aio.AioRpcError):
        await caller.ask("ListClusters")
    assert about[1:] == [{}]
