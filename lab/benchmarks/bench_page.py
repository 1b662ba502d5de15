"""What the page costs: each view of a fleet of 1,000 clusters with 50,000 bindings, 5,000 of which
wait, and 50 open pages while clusters change. Where a Chromium is found: when it first paints each.

Prints figures beside their goals; must not judge anything else.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import time
from collections.abc import Mapping
from itertools import count
from types import MappingProxyType
from typing import Any, NamedTuple

from federation.client import Client, Target
from federation.codec.documents import read_documents
from federation.codec.workloads import bindings_from_documents
from federation.model.waiting import WaitState
from federation.runtime.addresses import Address
from federation.services.binding_ports import NewWait
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore
from federation.v1.rebalance_pb2 import PLAN_KIND_DRAIN, CreatePlanRequest
from lab.benchmarks.measuring import TELLING_STALLS, chosen, show_stalls
from lab.benchmarks.members import CALL_SECONDS, PATIENT
from lab.benchmarks.stored_fleets import fill, parts
from lab.browser import CHROMIUM, Browser, Tab, chromium
from lab.callers import calling
from lab.fleet import cluster_name
from lab.planes import Plane, durable_postgres
from lab.processes import cpu_seconds, family_seconds
from lab.programs import clean_up_when_ended, own_folder
from lab.verdicts import Verdicts, at_most

CLUSTERS = chosen(1000, quick=100, full=10_000)
BINDINGS = chosen(50_000, quick=300)
WAITING = chosen(5000, quick=100)
ROUNDS = chosen(15, quick=2)
# So many clusters are emptied by the plan.
DRAINED = chosen(5, quick=2)
PASTED = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2000
  template:
    spec: {containers: [{name: web, resources: {requests: {cpu: 100m}}}]}
---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: all, namespace: shop}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
  placement: {replicaScheduling: {replicaSchedulingType: Divided}}
"""
NEW = PASTED.replace("name: web, namespace: shop", "name: new, namespace: shop")
OTHER = """
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: one, namespace: shop}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
  placement:
    clusterAffinity: {exclude: [member-00001]}
    replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Weighted}
"""
SEE_OTHER = 303
OPEN_PAGES = 50
OPEN_SECONDS = chosen(20.0, quick=2.0)
CHANGE_EVERY_SECONDS = 0.5
VIEW_GOAL_MILLIS, STALL_GOAL_MILLIS = 100.0, 50.0
PAINT_GOAL_MILLIS = 1000.0
PAINTED = """new Promise(done => new PerformanceObserver(list => list
  .getEntriesByName("first-contentful-paint").forEach(each => done(each.startTime)))
  .observe({type: "paint", buffered: true}))"""
SCREENS = ((400, False), (1280, True), (2560, False))
# Of a core, by all open pages together.
OPEN_GOAL_PERCENT = 10.0

FIGURES = Verdicts("bench_page")


class View(NamedTuple):
    """What is asked for; with ``fields`` it is a form, sent to its path."""

    title: str
    path: str
    fields: Mapping[str, str] = MappingProxyType({})


async def queue_up(url: str, waiting: int) -> None:
    """So many of the bindings wait."""
    engine = create_engine(url)
    store = PostgresStore(engine)
    async with store.reading() as read:
        found = await read.bindings.page("", None, waiting)
    for some in parts(found):
        async with store.transaction() as tx:
            stored = await tx.bindings.find([(each.namespace, each.name) for each in some])
            for each in stored.values():
                await tx.waiting.gate(
                    NewWait(
                        binding_id=each.id,
                        namespace=each.binding.namespace,
                        name=each.binding.name,
                        priority=0,
                        remainder=2,
                        short_of="cpu in 900 clusters",
                        state=WaitState.GATED,
                        gate="bench",
                    )
                )
    await engine.dispose()


async def decided(client: Client) -> str:
    """A decision over all clusters; its id."""
    (binding,) = bindings_from_documents(read_documents(PASTED, source="the text"))
    return (await client.schedule(binding)).decision.id


async def planned(client: Client) -> int:
    """A draft that moves many bindings; its number."""
    request = CreatePlanRequest(
        kind=PLAN_KIND_DRAIN, clusters=[cluster_name(each) for each in range(DRAINED)]
    )
    plan = await client.plans.create(request)
    FIGURES.note(f"a plan of {plan.step_count:,} steps")
    return plan.id


def views(decision: str, plan: int) -> list[View]:
    """Each of them once."""
    cluster = f"/ui/cluster?name={cluster_name(1)}"
    rows: list[tuple[Any, ...]] = [
        ("fleet", "/ui/"),
        ("fleet, the fullest first", "/ui/?sort=fullest"),
        ("cluster", cluster),
        ("bindings", "/ui/bindings"),
        ("binding", "/ui/binding?namespace=team-00&name=workload-000000"),
        ("queue", "/ui/queue"),
        ("gangs", "/ui/gangs"),
        ("decision", f"/ui/decision?id={decision}"),
        ("ask", "/ui/ask"),
        ("ask: what fits", "/ui/ask?cpu=1&memory=1Gi"),
        ("ask: preview", "/ui/preview", {"text": PASTED}),
        ("ask: preview of a new one", "/ui/preview", {"text": NEW}),
        ("compare", "/ui/compare"),
        ("compare: two placements", "/ui/compare", {"text": PASTED, "other": OTHER}),
        ("plans", "/ui/plans"),
        ("plan", f"/ui/plan?id={plan}"),
        ("what if", "/ui/what-if"),
        ("audit", "/ui/audit"),
        ("about", "/ui/about"),
    ]
    return [View(*row) for row in rows]


async def show_view(browser: Browser, plane: Plane, postgres: int, view: View) -> None:
    """How much CPU it costs us and the database, and how long it takes to be answered. The first of
    some views finds out what the others know already.
    """
    millis, ours, theirs, size = list[float](), list[float](), 0.0, 0
    for _ in range(ROUNDS):
        secret = {}
        if view.fields:
            form = await browser.get(view.path.replace("preview", "ask"))
            secret = {"form_secret": form.document.field("form_secret")}
        before = cpu_seconds(plane.pid), family_seconds(postgres)
        began = time.perf_counter()
        if view.fields:
            answer = await browser.post(view.path, {**secret, **view.fields})
        else:
            answer = await browser.get(view.path)
        millis.append((time.perf_counter() - began) * 1000)
        ours.append(1000 * (cpu_seconds(plane.pid) - before[0]))
        theirs += family_seconds(postgres) - before[1]
        assert answer.status == 200, (view, answer.status, answer.body[:500])
        size = max(size, len(answer.body.encode()))
    ours_millis, theirs_millis = statistics.mean(ours), 1000 * theirs / ROUNDS
    took = statistics.median(millis)
    detail = (
        f"first {ours[0]:.0f} ms; answered after {took:.0f} ms, "
        f"{theirs_millis:.0f} ms of CPU of the database, {size / 1024:.0f} KiB"
    )
    goal = at_most(VIEW_GOAL_MILLIS)
    FIGURES.row(f"{view.title}, CPU", ours_millis, "ms", goal=goal, detail=detail)


async def paint(address: Address, token: str, paths: list[str]) -> None:
    """When a browser shows the first of each view, the slowest on screens of all widths."""
    async with chromium() as browser, browser.tab() as tab:
        await tab.open(f"http://{address}/ui/sign-in")
        await tab.value(
            f"document.getElementById('token').value = {token!r}; document.forms[0].submit()"
        )
        millis = {path: await slowest_paint(tab, f"http://{address}{path}") for path in paths}
    path, slowest = max(millis.items(), key=lambda each: each[1])
    goal = at_most(PAINT_GOAL_MILLIS)
    FIGURES.row(f"first paint, the slowest: {path}", slowest, "ms", goal=goal)
    FIGURES.note(", ".join(f"{path} {each:.0f}" for path, each in millis.items()))


async def slowest_paint(tab: Tab, url: str) -> float:
    slowest = 0.0
    for width, dark in SCREENS:
        await tab.look(width=width, dark=dark)
        await tab.open(url)
        slowest = max(slowest, await tab.value(PAINTED))
    assert tab.troubles == [], (url, tab.troubles)
    return slowest


async def look(address: Address, plane: Plane, postgres: int, token: str) -> None:
    """At every view."""
    target = Target(
        endpoint=plane.endpoint, token=token, plaintext=True, timeout_seconds=CALL_SECONDS
    )
    async with Client(target) as client:
        decision, plan = await decided(client), await planned(client)
    plane.newest_lines()
    browser = Browser(address=address)
    assert (await browser.post("/ui/sign-in", {"token": token})).status == SEE_OTHER
    every = views(decision, plan)
    for view in every:
        await show_view(browser, plane, postgres, view)
    if CHROMIUM:
        await paint(address, token, [each.path for each in every if not each.fields])


async def open_pages(port: int, pages: int) -> None:
    """Each loads itself anew when it is told to."""
    browser = Browser(address=Address(host="127.0.0.1", port=port))

    async def keep_open(number: int) -> None:
        path = ("/ui/", f"/ui/cluster?name={cluster_name(number)}", "/ui/queue")[number % 3]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /ui/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        try:
            while line := await reader.readline():
                if line.startswith(b"event: changed"):
                    # As the script of a page does.
                    answer = await browser.get(path, fedsched_refresh="1")
                    assert answer.status == 200, (path, answer.status, answer.body[:500])
        finally:
            writer.close()

    await asyncio.gather(*map(keep_open, range(pages)))


async def change(endpoint: str, token: str) -> None:
    async with calling(endpoint, token, CALL_SECONDS) as caller:
        for number in count():
            await caller.ask("CordonCluster", name=cluster_name(1), cordoned=number % 2 == 0)
            await asyncio.sleep(CHANGE_EVERY_SECONDS)


async def share_of_a_core(plane: Plane, token: str, port: int, pages: int) -> float:
    """While clusters change, in percent."""
    tasks = [asyncio.create_task(change(plane.endpoint, token))]
    if pages:
        tasks.append(asyncio.create_task(open_pages(port, pages)))
    await asyncio.sleep(1.0)
    before = cpu_seconds(plane.pid)
    await asyncio.sleep(OPEN_SECONDS)
    share = 100 * (cpu_seconds(plane.pid) - before) / OPEN_SECONDS
    for each in tasks:
        assert not each.done(), each.result()
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return share


def main() -> None:
    with (
        own_folder("bench") as folder,
        durable_postgres(folder) as postgres,
        socket.create_server(("127.0.0.1", 0)) as chosen_port,
    ):
        asyncio.run(fill(postgres.url, CLUSTERS, BINDINGS))
        asyncio.run(queue_up(postgres.url, WAITING))
        FIGURES.section(f"{CLUSTERS:,} clusters, {BINDINGS:,} bindings, of which {WAITING:,} wait")
        state, port = folder / "state", chosen_port.getsockname()[1]
        chosen_port.close()
        arguments = (*PATIENT, *TELLING_STALLS, f"--web-listen=127.0.0.1:{port}")
        plane = Plane(0, postgres.url, state, arguments)
        plane.start()
        try:
            token = (state / "admin.token").read_text(encoding="ascii").strip()
            asyncio.run(look(Address(host="127.0.0.1", port=port), plane, postgres.pid, token))
            show_stalls(FIGURES, plane.newest_lines(), STALL_GOAL_MILLIS)
            without = asyncio.run(share_of_a_core(plane, token, port, 0))
            share = asyncio.run(share_of_a_core(plane, token, port, OPEN_PAGES)) - without
            goal = at_most(OPEN_GOAL_PERCENT)
            FIGURES.row(f"{OPEN_PAGES} open pages, of a core", share, "%", goal=goal)
        finally:
            plane.stop()


if __name__ == "__main__":
    clean_up_when_ended()
    main()
