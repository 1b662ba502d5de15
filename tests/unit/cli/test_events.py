"""``fedctl events``: what happened to bindings and clusters, by whom, and what happens next."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from federation.cli.events import (
    HistoryEvent,
    binding_events,
    cluster_events,
    subjects_of,
    with_callers,
)
from federation.v1 import access_pb2, resource_pb2, scheduling_pb2
from lab.control_planes import AgentStream, RunningControlPlane
from tests.unit.cli.calling import answered, binding, flags_for, run, shown, written
from tests.unit.cli.canned import WAIT, of
from tests.unit.cli.test_watch import line

SCHEDULE = ("schedule", "--node-timeout", "0s", "-f")


async def test_events_of_a_binding(
    running: RunningControlPlane, member1: AgentStream, tmp_path: Path
) -> None:
    del member1
    await shown(running, *SCHEDULE, written(tmp_path, binding(replicas=5)))
    await shown(running, *SCHEDULE, written(tmp_path, binding(replicas=3)))
    await shown(running, "suspend", "shop/web")
    events = await answered(running, "events", "binding", "web", "-n", "shop")
    assert [(event["what"], event["by"]) for event in events][:2] == [
        ("SCHEDULED member1=0->5", "admin"),
        ("SCHEDULED member1=5->3", "admin"),
    ]
    assert events[0]["why"] == "the binding is new"
    assert {"SuspendBinding", "waits, gated: suspended"} <= {event["what"] for event in events}
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)
    names = (await shown(running, "events", "binding/web", "-n", "shop", "-o", "name")).split()
    assert [name.partition("/")[0] for name in names[:2]] == ["decision", "decision"]
    assert (await run(running, "get", names[0], "-o", "name")).stdout == f"{names[0]}\n"
    table = (await shown(running, "events", "binding", "shop/web")).splitlines()
    assert table[0].split() == ["TIME", "AGE", "WHAT", "WHY", "BY"]
    await shown(running, "delete", "binding", "shop/web", "--yes")
    after = await answered(running, "events", "binding", "shop/web")
    assert "DeleteBinding" in [event["what"] for event in after]
    assert await answered(running, "events", "binding", "shop/web", "--limit", "1") == after[-1:]


async def test_events_of_a_cluster(
    running: RunningControlPlane, member1: AgentStream, tmp_path: Path
) -> None:
    del member1
    await shown(running, *SCHEDULE, written(tmp_path, binding(replicas=2)))
    await shown(running, "cordon", "member1", "--reason", "upgrade")
    events = await answered(running, "events", "cluster", "member1")
    about = {(event["object"], event["what"]) for event in events}
    assert ("cluster/member1", "CordonCluster") in about
    assert ("binding/shop/web", "SCHEDULED member1=2") in about
    table = (await shown(running, "events", "cluster/member1")).splitlines()
    assert table[0].split() == ["TIME", "AGE", "OBJECT", "WHAT", "WHY", "BY"]


async def test_a_taint_that_evicts_has_an_event(running: RunningControlPlane) -> None:
    await running.enrolled("quiet")
    await shown(running, "taint", "cluster", "quiet", "spot:NoExecute")
    events = await answered(running, "events", "cluster", "quiet")
    assert [event["what"] for event in events][-2:] == ["taint spot:NoExecute", "UpdateCluster"]


def test_states_of_objects_are_events() -> None:
    cluster = of(
        resource_pb2.Cluster,
        metadata={"name": "member1"},
        status={
            "conditions": [
                {
                    "type": "Ready",
                    "status": "Unknown",
                    "reason": "AgentSilent",
                    "message": "nothing was heard",
                    "lastTransitionTime": "2027-01-15T07:00:00Z",
                },
                {"type": "Lost", "status": "True"},
            ]
        },
    )
    (silence,) = cluster_events(cluster)
    assert (silence.subject, silence.what) == ("cluster/member1", "Ready Unknown")
    assert silence.why == "AgentSilent: nothing was heard"
    answer = of(
        scheduling_pb2.GetBindingResponse,
        wait={**WAIT, "earmarkedSince": "2027-01-15T07:56:00Z"},
    )
    answer.binding.metadata.name = "web"
    task = answer.binding.spec.graceful_eviction_tasks.add(
        from_cluster="member3", replicas=2, reason="TaintUntolerated", producer="fedsched"
    )
    task.creation_timestamp.FromJsonString("2027-01-15T07:57:00Z")
    assert [(event.what, event.why, event.by) for event in binding_events(answer)] == [
        ("waits, unschedulable", "short of memory in 2 clusters", ""),
        ("was overtaken", "", "shop/checkout-deployment"),
        ("has room kept for it", "", ""),
        ("leaves member3 with 2 replicas", "TaintUntolerated", "fedsched"),
    ]


async def test_events_of_all(
    running: RunningControlPlane, member1: AgentStream, tmp_path: Path
) -> None:
    del member1
    other = {**binding("api"), "metadata": {"namespace": "ml", "name": "api", "uid": "u"}}
    await shown(running, *SCHEDULE, written(tmp_path, binding(), other))
    objects = {event["object"] for event in await answered(running, "events", "-A")}
    assert {"binding/shop/web", "binding/ml/api", "cluster/member1"} <= objects
    within = {event["object"] for event in await answered(running, "events", "-n", "ml")}
    assert within == {"binding/ml/api"}


async def test_events_go_on(
    running: RunningControlPlane, member1: AgentStream, tmp_path: Path
) -> None:
    del member1
    await shown(running, *SCHEDULE, written(tmp_path, binding("next")))
    command = (sys.executable, "-m", "federation.cli", *flags_for(running), "events", "-w")
    process = await asyncio.create_subprocess_exec(
        *(*command, "binding", "shop/next", "-o", "json"), stdout=PIPE
    )
    try:
        first = json.loads(await line(process))
        assert (first["type"], first["object"]["what"]) == ("ADDED", "SCHEDULED member1=0->5")
        await shown(running, *SCHEDULE, written(tmp_path, binding("next", replicas=4)))
        second = json.loads(await line(process))
        assert (second["type"], second["object"]["what"]) == ("ADDED", "SCHEDULED member1=5->4")
    finally:
        process.kill()
        await process.wait()


async def test_who_may_not_read_the_audit_is_told(
    running: RunningControlPlane, member1: AgentStream, tmp_path: Path
) -> None:
    del member1
    await shown(running, *SCHEDULE, written(tmp_path, binding()))
    secret = await shown(running, "token", "create", "look", "--role", "viewer", "--token-only")
    token = tmp_path / "viewer.token"
    token.write_text(secret)
    seen = await run(running, "events", "binding", "shop/web", "--token-file", str(token))
    assert seen.exit_code == 0
    assert "BY and calls without a decision are left out: " in seen.stderr
    assert seen.stdout.splitlines()[1].split()[-1] == "-"


async def test_what_is_wrong_is_told(running: RunningControlPlane) -> None:
    for arguments, code, words in (
        (("pods", "x"), 2, "There is no kind 'pods'. The kinds are bindings, clusters."),
        (("binding",), 2, "say which binding: fedctl events binding NAME"),
        (("cluster/",), 2, "say which cluster"),
        (("cluster", "member1", "-n", "shop"), 2, "-n: clusters are in no namespace"),
        (("cluster/a", "binding/b"), 2, "binding/b: all objects of one call have one kind"),
        (("binding", "shop/nosuch"), 1, "shop/nosuch"),
        (("cluster", "nosuch"), 1, "nosuch"),
        (("--since", "soon"), 1, "--since: must be a span such as 24h"),
    ):
        result = await run(running, "events", *arguments)
        assert (result.exit_code, words in result.output) == (code, True), result.output


def test_several_objects() -> None:
    assert list(subjects_of(["cluster", "a", "b"], "").clusters) == ["a", "b"]
    assert subjects_of(["rb/web", "rb/api"], "shop").bindings == [("shop", "web"), ("shop", "api")]


@pytest.mark.parametrize(
    ("seconds", "result", "by"),
    [(101, "OK", "ops"), (103, "OK", "control plane"), (100, "ABORTED", "control plane")],
)
def test_a_decision_is_of_the_call_beside_it(seconds: int, result: str, by: str) -> None:
    event = HistoryEvent(time=100.0, key="decision/d", subject="binding/shop/web", what="SCHEDULED")
    record = of(
        access_pb2.AuditRecord,
        id=1,
        time=f"1970-01-01T00:01:{seconds - 60:02d}Z",
        actor="ops",
        method="Scheduling/Schedule",
        objects=["shop/web"],
        result=result,
    )
    decided, *calls = with_callers([event], [record], "control plane")
    assert decided.by == by
    assert len(calls) == (by == "control plane")
