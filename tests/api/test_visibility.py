"""What callers of one namespace read of others: numbers, and no names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from federation.codec.rights import DECLARED
from federation.model.access import Role
from federation.model.arrays import IntArray
from federation.model.quotations import HIDDEN_SENTENCE
from federation.rpc.served import METHODS
from federation.scheduler.plugins.profile import (
    DEFAULT_PROFILE,
    Filter,
    Permit,
    Profile,
    Profiles,
)
from federation.scheduler.state import CycleState
from federation.v1 import scheduling_pb2 as messages
from federation.v1.agents_pb2 import Echo, EchoShape
from lab.browser import Browser
from lab.control_planes import AgentStream, Plane, report, running_control_plane
from lab.patience import until
from tests.api.calls import DUPLICATED, VIEWER, answer_places, binding, header_of, made, scheduled


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


async def first_event(api: Plane, metadata: Any, namespace: str) -> messages.BindingEvent:
    request = messages.WatchBindingsRequest(namespace=namespace)
    call = api.admin.scheduling.WatchBindings(request, metadata=metadata)
    try:
        async for response in call:
            for event in response.events:
                if event.binding.metadata.name:
                    return event
    finally:
        call.cancel()
    raise AssertionError("nothing was told")


async def pages_of(plane: Plane, secret: str, *paths: str) -> dict[str, str]:
    """What a browser shows that signed in with a token, by path."""
    browser = Browser(address=plane.plane.web_endpoint)
    assert (await browser.post("/ui/sign-in", {"token": secret})).status == 303
    return {path: (await browser.get(path)).body for path in paths}


async def test_who_preempted_and_who_was_is_not_told_to_others(
    fresh: Plane,
) -> None:
    async with fresh.connected("eu-1", report=report()):
        tokens = {
            name: await fresh.token(Role.SCHEDULER, name) for name in ("hidden-a", "hidden-b")
        }
        callers = {name: fresh.caller(secret) for name, secret in tokens.items()}
        answers = {}
        for name, workload, replicas, priority in (
            ("hidden-a", "db", 15, 0),
            ("hidden-b", "web", 10, 5),
        ):
            stub = callers[name].scheduling
            request = asked(name, workload, replicas, priority)
            answers[name] = await callers[name].call(stub.Schedule, request)
        assert answers["hidden-b"].decision.outcome == messages.OUTCOME_SCHEDULED
        for own, other in (("hidden-a", "hidden-b"), ("hidden-b", "hidden-a")):
            caller, name = callers[own], answers[own].decision.name
            listed = await caller.ask("ListDecisions")
            told: list[Any] = [answers[own], listed, await caller.ask("ListQueue")]
            ids = [decision.id for decision in listed.decisions]
            told += [await caller.ask("GetDecision", id=each) for each in ids]
            told.append(await caller.ask("GetBinding", namespace=own, name=name))
            told.append(await first_event(fresh, caller.metadata, own))
            try:
                preview = asked(own, "more", 9, 7)
                preview.preview = True
                told.append(await caller.call(caller.scheduling.Schedule, preview))
            except grpc.aio.AioRpcError as refused:
                told.append(refused.details())
            paths = ["/ui/", "/ui/queue", f"/ui/binding?namespace={own}&name={name}"]
            paths += [f"/ui/decision?id={each}" for each in ids]
            shown = await pages_of(fresh, tokens[own], *paths)
            for text in ("\n".join(map(str, told)), "".join(shown.values())):
                assert other not in text
                assert "a binding of another namespace" in text
        # Who may see both reads both.
        every = await until(
            lambda: fresh.ask("ListDecisions"), lambda answer: len(answer.decisions) >= 3
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


async def answers_for(api: Plane, secret: str, *names: str) -> AsyncIterator[tuple[str, Any]]:
    """All that a scheduler of a namespace reads of its bindings, by the name of the call."""
    caller = api.caller(secret)
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
    listed = await caller.ask("ListDecisions")
    yield "ListDecisions", listed
    for decision in listed.decisions:
        for method in ("GetDecision", "ReplayDecision"):
            yield method, await caller.ask(method, id=decision.id)
    queue = await caller.ask("ListQueue")
    assert queue.bindings
    yield "ListQueue", queue
    bindings = await caller.ask("ListBindings")
    yield "ListBindings", bindings
    for own in bindings.bindings:
        name = own.metadata.name
        yield "GetBinding", await caller.ask("GetBinding", namespace="shop", name=name)
    yield "WatchBindings", await first_event(api, caller.metadata, "shop")
    paths = ["/ui/", "/ui/queue", "/ui/bindings", "/ui/about"]
    paths += [f"/ui/binding?namespace=shop&name={name}" for name in names]
    paths += [f"/ui/decision?id={decision.id}" for decision in listed.decisions]
    for page in (await pages_of(api, secret, *paths)).items():
        yield page


async def test_what_a_plugin_says_is_read_by_callers_of_everything_alone(
    database_url: str, tmp_path: Path
) -> None:
    profiles = Profiles.of([BUDGET])
    async with (
        running_control_plane(database_url, tmp_path, profiles) as api,
        api.connected("eu-1", report=report()),
    ):
        hidden = set()
        async for call, answer in answers_for(
            api, await api.token(Role.SCHEDULER, "shop"), "web", "kept", "fails"
        ):
            assert "zz-" not in str(answer), (call, answer)
            if HIDDEN_SENTENCE in str(answer):
                hidden.add(call.partition("?")[0])
        assert hidden >= {
            *("Schedule", "ScheduleBatch", "ListDecisions", "GetDecision", "GetBinding"),
            *("ListQueue", "WatchBindings", "/ui/queue", "/ui/binding", "/ui/decision"),
        }
        everything = await api.token(Role.SCHEDULER)
        told = {
            call
            async for call, answer in answers_for(api, everything, "web", "kept")
            if "zz-secret" in str(answer)
        }
        assert {call for call in hidden if call[0] != "/"} <= told


async def all_run(api: Plane, stream: AgentStream, key: str, replicas: int) -> None:
    """The cluster says that these pods run there, and that nothing is free."""
    full = report(
        sequence=2,
        interest_version=api.plane.parts.fleet.ledger(stream.cluster).interest_version,
        echo_shapes=[EchoShape(request={"cpu": 1000})],
        echoes=[Echo(binding=key, shape=0, bound=replicas)],
    )
    full.pools.minimums[0] = 0
    await stream.say(report=full)
    heard = await stream.next()
    while heard is not None and heard.ack.sequence != 2:
        heard = await stream.next()
    assert heard is not None


@pytest.mark.expected_errors("failover is frozen")
async def test_failover_names_nobody_whom_its_reader_may_not_see(
    database_url: str, tmp_path: Path
) -> None:
    async with (
        running_control_plane(database_url, tmp_path) as api,
        api.connected("eu-1", report=report()) as europe,
        api.connected("us-1", report=report()) as america,
    ):
        for name, region in (("eu-1", "zz-europe"), ("us-1", "america")):
            cluster = {"metadata": {"name": name}, "spec": {"region": region}}
            await api.ask("UpdateCluster", cluster=cluster)
        for region in ("zz-europe", "america"):
            await api.ask("FreezeFailover", region=region, reason=f"zz-outage of {SECRET}")
        admin = api.admin
        # Preempted by somebody of another namespace.
        answer = await admin.call(admin.scheduling.Schedule, asked("shop", "web", 30, 0))
        bound = {share.name: share.replicas for share in answer.decision.clusters}
        for stream in (europe, america):
            await all_run(api, stream, "shop/web", bound[stream.cluster])
        strong = asked("zz-secret", "zz-strong", 30, 9)
        strong.wait = True
        await admin.call(admin.scheduling.Schedule, strong)
        await until(
            lambda: admin.ask("GetFailover"),
            lambda answer: (
                f"preempted by {SECRET}" in str(answer) and len(answer.status.evictions) > 1
            ),
        )
        viewers = [
            {"namespaces": ["shop"]},
            {"clusters": ["us-*"]},
            {"namespaces": ["shop"], "clusters": ["us-*"]},
        ]
        for scope in viewers:
            viewer, _ = await made(api, VIEWER, **scope)
            status = (await viewer.ask("GetFailover")).status
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
            secret = header_of(viewer).removeprefix("Bearer ")
            about = (await pages_of(api, secret, "/ui/about"))["/ui/about"]
            assert "zz-outage" not in about
            assert ("zz-europe" in about) == ("clusters" not in scope)


# Fields of a request that hold one text, by the names of rpcs.
TEXT_FIELDS = {
    path.rpartition("/")[2]: {
        field.name
        for field in method.input_type.fields
        if field.type == field.TYPE_STRING and not field.is_repeated
    }
    for path, method in METHODS.items()
}


def readings() -> list[str]:
    """All rpcs that a viewer may call, and that answer once."""
    return [
        path.rpartition("/")[2]
        for path, permission in DECLARED.items()
        if Role.VIEWER in permission.roles and not METHODS[path].server_streaming
    ]


async def test_no_reading_rpc_names_nodes_of_a_cluster_that_its_caller_may_not_see(
    database_url: str, tmp_path: Path
) -> None:
    async with (
        running_control_plane(database_url, tmp_path) as api,
        api.connected("eu-1", report=report()) as europe,
        api.connected("us-1", report=report()) as america,
    ):
        asking = scheduled(
            api,
            binding("web", placement={"replica_scheduling": DUPLICATED}),
            node_timeout_seconds=30,
        )
        scheduling = asyncio.ensure_future(asking)
        await answer_places(europe, "zz-node-of-europe")
        await answer_places(america, "node-of-america")
        decision = (await scheduling).decision
        assert "zz-node-of-europe" in str(decision)
        viewer, _ = await made(api, VIEWER, clusters=["us-*"])
        answers = {}
        values = {"id": decision.id, "namespace": "shop", "name": "web", "cluster": "us-1"}
        for method in readings():
            texts = TEXT_FIELDS[method]
            request_fields = {name: value for name, value in values.items() if name in texts}
            if method == "GetCluster":
                request_fields["name"] = "us-1"
            try:
                answers[method] = str(await viewer.ask(method, **request_fields))
            except grpc.aio.AioRpcError as refusal:
                answers[method] = f"{refusal.details()} {refusal.trailing_metadata()}"
        assert {method for method, text in answers.items() if "zz-node" in text} == set()
        assert "node-of-america" in answers["GetDecision"]
        assert "node-of-america" in answers["GetBinding"]
        assert len(answers) > 15
