"""What callers of one namespace read of others: numbers, and no names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from federation.model.access import Role
from federation.model.arrays import IntArray
from federation.model.quotations import HIDDEN_SENTENCE
from federation.scheduler.plugins.profile import (
    DEFAULT_PROFILE,
    Filter,
    Permit,
    Profile,
    Profiles,
)
from federation.scheduler.state import CycleState
from federation.v1 import access_pb2, access_pb2_grpc
from federation.v1 import scheduling_pb2 as messages
from federation.v1.access_pb2 import ROLE_VIEWER, CreateTokenRequest
from federation.v1.access_pb2_grpc import AccessStub
from federation.v1.agents_pb2 import Echo, EchoShape
from federation.v1.clusters_pb2 import GetClusterRequest, UpdateClusterRequest
from federation.v1.failover_pb2 import FreezeFailoverRequest, GetFailoverRequest
from federation.v1.failover_pb2_grpc import FailoverStub
from lab.browser import Browser
from lab.control_planes import AgentStream, RunningControlPlane, report, running_control_plane
from lab.patience import until


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


SECRET = "zz-secret/zz-strong"


def objecting(state: CycleState, replicas_c: IntArray) -> str:
    """A permit plug-in that says what it knows of others."""
    if state.binding.name == "fails":
        raise ValueError(f'"{SECRET}" is <in> the way')
    return f'” no budget: "{SECRET}" took <it>'


def refusing(state: CycleState) -> list[tuple[Any, str]]:
    """A filter of somebody else."""
    return [(state.fleet.ready_c, f"kept for {SECRET}")] if state.binding.name == "kept" else []


BUDGET = Profile(
    name="budget",
    filters=(*DEFAULT_PROFILE.filters, Filter(name="Kept", run=refusing)),
    scores=DEFAULT_PROFILE.scores,
    permits=(Permit(name="Budget", run=objecting),),
)


async def answers_for(
    running: RunningControlPlane, secret: str, *names: str
) -> AsyncIterator[tuple[str, Any]]:
    """All that a scheduler of a namespace reads of its bindings, by the name of the call."""
    caller = running.caller(secret)
    scheduling, call = caller.scheduling, caller.call
    for name in names:
        request = asked("shop", name, 3, 0)
        request.binding.spec.scheduler_name = "budget"
        for is_preview in (True, False):
            request.preview, request.wait = is_preview, not is_preview
            try:
                yield "Schedule", await call(scheduling.Schedule, request)
            except grpc.aio.AioRpcError as refusal:
                yield "Schedule", f"{refusal.details()} {refusal.trailing_metadata()}"
        item = messages.ScheduleBatchItem(binding=request.binding)
        batch = messages.ScheduleBatchRequest(items=[item])
        yield "ScheduleBatch", await call(scheduling.ScheduleBatch, batch)
    listed = await call(scheduling.ListDecisions, messages.ListDecisionsRequest())
    yield "ListDecisions", listed
    for decision in listed.decisions:
        by_id = messages.GetDecisionRequest(id=decision.id)
        yield "GetDecision", await call(scheduling.GetDecision, by_id)
        replay = messages.ReplayDecisionRequest(id=decision.id)
        yield "ReplayDecision", await call(scheduling.ReplayDecision, replay)
    queue = await call(scheduling.ListQueue, messages.ListQueueRequest())
    yield "ListQueue", queue
    assert queue.bindings
    bindings = await call(scheduling.ListBindings, messages.ListBindingsRequest())
    yield "ListBindings", bindings
    for binding in bindings.bindings:
        named = {"namespace": "shop", "name": binding.metadata.name}
        got = await call(scheduling.GetBinding, messages.GetBindingRequest(**named))
        yield "GetBinding", got
    yield "WatchBindings", await first_event(running, caller.metadata, "shop")
    browser = Browser(address=running.plane.web_endpoint)
    assert (await browser.post("/ui/sign-in", {"token": secret})).status == 303
    paths = ["/ui/", "/ui/queue", "/ui/bindings", "/ui/about"]
    paths += [f"/ui/binding?namespace=shop&name={name}" for name in names]
    paths += [f"/ui/decision?id={decision.id}" for decision in listed.decisions]
    for path in paths:
        yield path, (await browser.get(path)).body


async def test_what_a_plugin_says_is_read_by_callers_of_everything_alone(
    database_url: str, tmp_path: Path
) -> None:
    profiles = Profiles.of([BUDGET])
    async with (
        running_control_plane(database_url, tmp_path, profiles) as running,
        running.connected("eu-1", report=report()),
    ):
        hidden = set()
        async for call, answer in answers_for(
            running, await token_of(running, "shop"), "web", "kept", "fails"
        ):
            assert "zz-" not in str(answer), (call, answer)
            if HIDDEN_SENTENCE in str(answer):
                hidden.add(call.partition("?")[0])
        assert hidden >= {
            *("Schedule", "ScheduleBatch", "ListDecisions", "GetDecision", "GetBinding"),
            *("ListQueue", "WatchBindings", "/ui/queue", "/ui/binding", "/ui/decision"),
        }
        everything = await running.token(Role.SCHEDULER)
        told = {
            call
            async for call, answer in answers_for(running, everything, "web", "kept")
            if "zz-secret" in str(answer)
        }
        assert {call for call in hidden if call[0] != "/"} <= told


async def all_run(
    running: RunningControlPlane, stream: AgentStream, key: str, replicas: int
) -> None:
    """The cluster says that these pods run there, and that nothing is free."""
    full = report(
        sequence=2,
        interest_version=running.plane.parts.fleet.ledger(stream.cluster).interest_version,
        echo_shapes=[EchoShape(request={"cpu": 1000})],
        echoes=[Echo(binding=key, shape=0, bound=replicas)],
    )
    full.pools.minimums[0] = 0
    await stream.say(report=full)
    heard = await stream.next()
    while heard is not None and heard.ack.sequence != 2:
        heard = await stream.next()
    assert heard is not None


async def test_failover_names_nobody_whom_its_reader_may_not_see(
    database_url: str, tmp_path: Path
) -> None:
    async with (
        running_control_plane(database_url, tmp_path) as running,
        running.connected("eu-1", report=report()) as europe,
        running.connected("us-1", report=report()) as america,
    ):
        admin = running.admin
        for name, region in (("eu-1", "zz-europe"), ("us-1", "america")):
            got = await admin.call(admin.clusters.GetCluster, GetClusterRequest(name=name))
            got.cluster.spec.region = region
            update = UpdateClusterRequest(cluster=got.cluster)
            await admin.call(admin.clusters.UpdateCluster, update)
        failover: Any = FailoverStub(running.channel)
        for region in ("zz-europe", "america"):
            freeze = FreezeFailoverRequest(region=region, reason=f"zz-outage of {SECRET}")
            await admin.call(failover.FreezeFailover, freeze)
        # Preempted by somebody of another namespace.
        answer = await admin.call(admin.scheduling.Schedule, asked("shop", "web", 30, 0))
        bound = {share.name: share.replicas for share in answer.decision.clusters}
        for stream in (europe, america):
            await all_run(running, stream, "shop/web", bound[stream.cluster])
        strong = asked("zz-secret", "zz-strong", 30, 9)
        strong.wait = True
        await admin.call(admin.scheduling.Schedule, strong)
        await until(
            lambda: admin.call(failover.GetFailover, GetFailoverRequest()),
            lambda answer: (
                f"preempted by {SECRET}" in str(answer) and len(answer.status.evictions) > 1
            ),
        )
        viewers = [
            {"namespaces": ["shop"]},
            {"clusters": ["us-*"]},
            {"namespaces": ["shop"], "clusters": ["us-*"]},
        ]
        access: Any = AccessStub(running.channel)
        for scope in viewers:
            made = await admin.call(
                access.CreateToken, CreateTokenRequest(name="v", role=ROLE_VIEWER, **scope)
            )
            viewer = running.caller(made.secret)
            status = (await viewer.call(failover.GetFailover, GetFailoverRequest())).status
            assert "zz-outage" not in str(status)
            regions = [place.region for place in status.places]
            assert regions == (["america"] if "clusters" in scope else ["america", "zz-europe"])
            assert [each.namespace for each in status.evictions] == ["shop"] * (
                1 if "clusters" in scope else 2
            )
            assert ("zz-strong" in str(status)) == ("namespaces" not in scope)
            if "clusters" in scope:
                assert "eu-1" not in str(status)
            assert {place.freeze.by for place in status.places} == {"people"}
            browser = Browser(address=running.plane.web_endpoint)
            assert (await browser.post("/ui/sign-in", {"token": made.secret})).status == 303
            about = (await browser.get("/ui/about")).body
            assert "zz-outage" not in about
            assert ("zz-europe" in about) == ("clusters" not in scope)
