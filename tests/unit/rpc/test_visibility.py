"""What callers of one namespace read of others: numbers, and no names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from federation.v1 import access_pb2, access_pb2_grpc
from federation.v1 import scheduling_pb2 as messages
from tests.control_planes import RunningControlPlane, report, running_control_plane
from tests.patience import until
from tests.unit.web.browser import Browser


def asked(namespace: str, name: str, replicas: int, priority: int) -> messages.ScheduleRequest:
    request = messages.ScheduleRequest()
    request.binding.metadata.namespace, request.binding.metadata.name = namespace, name
    spec = request.binding.spec
    spec.resource.api_version, spec.resource.kind = "apps/v1", "Deployment"
    spec.resource.namespace, spec.resource.name = namespace, name
    spec.replicas = replicas
    spec.replica_requirements.resource_request["cpu"] = "1"
    spec.placement.replica_scheduling.replica_scheduling_type = "Divided"
    spec.schedule_priority.priority = priority
    spec.preemption_policy = "PreemptLowerPriority"
    return request


async def token_of(running: RunningControlPlane, *namespaces: str) -> str:
    access = access_pb2_grpc.AccessStub(running.channel)
    request = access_pb2.CreateTokenRequest(
        name="t", role=access_pb2.ROLE_SCHEDULER, namespaces=namespaces
    )
    return (await running.admin.call(access.CreateToken, request)).secret


async def first_event(
    running: RunningControlPlane, metadata: Any, namespace: str
) -> messages.BindingEvent:
    request = messages.WatchBindingsRequest(namespace=namespace)
    call = running.admin.scheduling.WatchBindings(request, metadata=metadata)
    try:
        async for response in call:
            for event in response.events:
                if event.binding.metadata.name:
                    return event
    finally:
        call.cancel()
    raise AssertionError("nothing was told")


async def test_who_preempted_and_who_was_is_not_told_to_others(
    database_url: str, tmp_path: Path
) -> None:
    async with (
        running_control_plane(database_url, tmp_path) as running,
        running.connected("eu-1", report=report()),
    ):
        scheduling = running.admin.scheduling
        tokens = {name: await token_of(running, name) for name in ("hidden-a", "hidden-b")}
        bearer = {name: (("authorization", f"Bearer {secret}"),) for name, secret in tokens.items()}
        answers = {
            "hidden-a": await scheduling.Schedule(
                asked("hidden-a", "db", 15, 0), metadata=bearer["hidden-a"]
            ),
            "hidden-b": await scheduling.Schedule(
                asked("hidden-b", "web", 10, 5), metadata=bearer["hidden-b"]
            ),
        }
        assert answers["hidden-b"].decision.outcome == messages.OUTCOME_SCHEDULED
        for own, other in (("hidden-a", "hidden-b"), ("hidden-b", "hidden-a")):
            metadata = bearer[own]
            listed = await scheduling.ListDecisions(
                messages.ListDecisionsRequest(), metadata=metadata
            )
            told: list[Any] = [answers[own], listed]
            for decision in listed.decisions:
                request = messages.GetDecisionRequest(id=decision.id)
                told.append(await scheduling.GetDecision(request, metadata=metadata))
            name = answers[own].decision.name
            request = messages.GetBindingRequest(namespace=own, name=name)
            told.append(await scheduling.GetBinding(request, metadata=metadata))
            queue = await scheduling.ListQueue(messages.ListQueueRequest(), metadata=metadata)
            told += [queue, await first_event(running, metadata, own)]
            try:
                preview = asked(own, "more", 9, 7)
                preview.preview = True
                told.append(await scheduling.Schedule(preview, metadata=metadata))
            except grpc.aio.AioRpcError as refused:
                told.append(refused.details())
            text = "\n".join(map(str, told))
            assert other not in text
            assert "a binding of another namespace" in text
            browser = Browser(address=running.plane.web_endpoint)
            signed_in = await browser.post("/ui/sign-in", {"token": tokens[own]})
            assert signed_in.status == 303
            paths = ["/ui/", "/ui/queue", f"/ui/binding?namespace={own}&name={name}"]
            paths += [f"/ui/decision?id={decision.id}" for decision in listed.decisions]
            pages = [(await browser.get(path)).body for path in paths]
            assert other not in "".join(pages)
            assert "a binding of another namespace" in "".join(pages)
        # Who may see both reads both.
        every = await until(
            lambda: running.admin.call(scheduling.ListDecisions, messages.ListDecisionsRequest()),
            lambda answer: len(answer.decisions) >= 3,
        )
        assert "preempted by hidden-b/web" in str(every)
