"""The page of a running control plane: every view, who may look, and who may do something."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from federation.v1 import access_pb2
from federation.v1.resource_pb2 import ResourceBinding
from federation.web import server
from lab.browser import Answered, Browser
from lab.control_planes import RunningControlPlane, report, running_control_plane
from lab.patience import PATIENCE_SECONDS, until
from tests.api.calls import BY_ROOM, scheduled
from tests.api.calls import binding as workload

EVIL = "x'\"><script>alert(1)</script>"
WORKLOAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 3
  template:
    spec: {containers: [{name: web, resources: {requests: {cpu: 500m}}}]}
---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: all, namespace: shop}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
  placement: {replicaScheduling: {replicaSchedulingType: Divided}}
"""


def binding(name: str, replicas: int) -> ResourceBinding:
    made = workload(name, replicas=replicas, placement={"replica_scheduling": BY_ROOM})
    made.spec.resource.name = EVIL
    return made


def check(page: Answered) -> None:
    """Whole HTML, nothing of elsewhere, and nothing in it that acts."""
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert page.headers["x-frame-options"] == "DENY"
    assert page.headers["cache-control"] == "no-store"
    document = page.document
    assert [each.attributes["src"] for each in document.all("script")] == ["/ui/static/page.js"]
    assert document.all("style") == []
    for each in document.elements:
        assert not any(name.startswith("on") or name == "style" for name in each.attributes)
        for name in ("src", "href", "action"):
            assert each.attributes.get(name, "/").startswith(("/", "#")) or name == "href"
            assert ":" not in each.attributes.get(name, "").partition("?")[0]
    ids = [each.attributes["id"] for each in document.elements if "id" in each.attributes]
    assert len(ids) == len(set(ids))
    labelled = {
        each.attributes["for"] for each in document.all("label") if "for" in each.attributes
    }
    assert labelled <= set(ids)


async def made_token(
    running: RunningControlPlane, **fields: Any
) -> tuple[str, Callable[[], Awaitable[object]]]:
    """A token, and what revokes it."""
    made = await running.ask("CreateToken", name="t", **fields)
    return made.secret, lambda: running.ask("RevokeToken", id=made.token.id)


async def everything(
    browser: Browser, first: str, statuses: Collection[int] = (200,)
) -> dict[str, Answered]:
    """All pages that links lead to."""
    pages: dict[str, Answered] = {}
    left = {first}
    while left:
        path = left.pop()
        pages[path] = page = await browser.get(path)
        assert page.status in statuses, (path, page.body)
        check(page)
        left |= page.document.links(path) - pages.keys()
    return pages


async def test_every_view_is_whole_and_every_link_leads_somewhere(
    running: RunningControlPlane,
) -> None:
    browser = Browser(address=running.plane.web_endpoint)
    assert "No cluster has joined yet" in (await browser.get("/ui/")).document.text
    assert (await browser.get("/")).headers["location"] == "/ui/"
    async with running.connected("alpha", report=report()):
        member = binding("member", 1)
        member.spec.gang.name, member.spec.gang.size = "training", 2
        for one in (binding("web", 5), binding("too-many", 500), member):
            await scheduled(running, one)
        await running.ask("CordonCluster", name="alpha", cordoned=True)
        south = {"metadata": {"name": "alpha"}, "spec": {"region": "south"}}
        await running.ask("UpdateCluster", cluster=south)
        await running.ask("FreezeFailover", reason=EVIL, region="south")
        # The picture of the fleet is worked out once a second.
        await until(lambda: browser.get("/ui/"), lambda page: "cordoned" in page.document.text)
        pages = await everything(browser, "/ui/")
        for chosen, shown, left_out in (
            ("name=many", "too-many", "web"),
            ("standing=placed", "web", "too-many"),
            ("standing=waiting", "too-many", "web"),
            ("standing=nowhere&name=oo", "too-many", "web"),
        ):
            page = await browser.get(f"/ui/bindings?{chosen}")
            check(page)
            listed = page.document.links("/ui/bindings")
            assert any(shown in each for each in listed), chosen
            assert not any(f"name={left_out}" in each for each in listed), chosen
        nothing = await browser.get("/ui/bindings?name=many&standing=placed")
        assert "There is no binding here" in nothing.document.text
        fits = await browser.get("/ui/ask?cpu=1&memory=1Gi")
        check(fits)
    views = {path.partition("?")[0] for path in pages}
    assert views == {
        *("/ui/", "/ui/cluster", "/ui/bindings", "/ui/binding", "/ui/queue", "/ui/decision"),
        *("/ui/plans", "/ui/ask", "/ui/about", "/ui/sign-in", "/ui/compare"),
        *("/ui/gangs", "/ui/gang", "/ui/what-if"),
    }
    assert "cordoned" in pages["/ui/"].document.text
    assert "Deployment/" + EVIL in pages["/ui/bindings"].document.text
    assert "too-many" in pages["/ui/queue"].document.text
    assert "1 of 2 members of gang training" in pages["/ui/gang?namespace=shop&name=training"].body
    # 16 cores, of which 5 are promised; of the cores of a node one is left over.
    assert "11 replicas" in fits.document.text
    about = pages["/ui/about"].document.text
    assert "frozen in by region south admin" in about
    assert EVIL in about
    assert "running, 5 cores promised" in pages["/ui/cluster?name=alpha"].body


WRONG = [
    ("/ui/cluster?name=nobody", 404, "There is no cluster 'nobody'"),
    ("/ui/cluster", 400, "is required"),
    ("/ui/decision?id=x", 404, "There is no decision"),
    ("/ui/binding?name=%00", 400, "without NUL"),
    ("/ui/?sort=evil", 400, "must be one of name"),
    ("/ui/bindings?standing=idle", 400, "must be one of placed, waiting, nowhere"),
    ("/ui/queue?priority=1&since=nan", 400, "must be a time"),
    ("/ui/?first=-1", 400, "must be a whole number"),
    ("/ui/gang?namespace=shop&name=nobody", 404, "There is no gang"),
    ("/ui/ask?cpu=lots", 200, "resourceRequest"),
    ("/ui/ask?others=gpu", 200, "must be name=value"),
]


async def test_what_cannot_be_answered_says_why(running: RunningControlPlane) -> None:
    browser = Browser(address=running.plane.web_endpoint)
    for path, status, said in WRONG:
        page = await browser.get(path)
        assert page.status == status, (path, page.body)
        assert said in page.document.text, (path, page.document.text)
        check(page)


async def check_roles(running: RunningControlPlane) -> None:
    """Who may look, and who may commit."""
    viewer = Browser(address=running.plane.web_endpoint)
    secret, ended = await made_token(running, role=access_pb2.ROLE_VIEWER)
    assert (await viewer.post("/ui/sign-in", {"token": secret})).status == 303
    assert "alpha" in (await viewer.get("/ui/")).document.text
    assert (await viewer.get("/ui/audit")).status == 403
    fields = {"form_secret": (await viewer.get("/ui/ask")).document.field("form_secret")}
    refused = await viewer.post("/ui/commit", {**fields, "preview_token": "a.b"})
    assert refused.status == 403
    assert "needs admin or bridge or scheduler" in refused.document.text
    await ended()
    assert (await viewer.get("/ui/")).status == 303


async def check_links(running: RunningControlPlane, signed_in: Browser) -> None:
    """Who follows a link of another site is sent on by a page of ours, which brings the cookie."""
    stranger = Browser(address=running.plane.web_endpoint)
    link = "/ui/cluster?name=alpha&q=%22%3E%3Cscript%3E"
    followed = await stranger.get(link, sec_fetch_site="cross-site")
    (refresh,) = [each for each in followed.document.all("meta") if len(each.attributes) == 2]
    assert refresh.attributes["content"] == f"0;url={link}"
    assert followed.document.all("script") == []
    assert (await signed_in.get(link)).status == 200
    assert (await stranger.get(link, sec_fetch_site="same-origin")).status == 303


async def test_a_token_is_given_once_and_a_session_stands_for_it(
    guarded: RunningControlPlane,
) -> None:
    running = guarded
    token = running.plane.admin_token_file.read_text(encoding="ascii").strip()
    browser = Browser(address=running.plane.web_endpoint)
    for path in ("/ui/", "/ui/bindings?namespace=a%26b", "/ui/events", "/ui/ask"):
        assert (await browser.get(path)).status == 303
    there = (await browser.get("/ui/bindings?namespace=a%26b")).headers["location"]
    assert (await browser.get(there)).document.field("next") == "/ui/bindings?namespace=a%26b"
    wrong = await browser.post("/ui/sign-in", {"token": "a.b", "next": "/ui/"})
    assert (wrong.status, wrong.cookies) == (401, ())
    agent = await running.enrolled("alpha")
    bearer = agent.metadata[0][1].removeprefix("Bearer ")
    assert (await browser.post("/ui/sign-in", {"token": bearer})).status == 403
    signed_in = await browser.post(
        "/ui/sign-in", {"token": f" {token}\n", "next": "//evil.example/"}
    )
    assert (signed_in.status, signed_in.headers["location"]) == (303, "/ui/")
    (cookie,) = signed_in.cookies
    assert (cookie["httponly"], cookie["samesite"].lower(), cookie["path"]) == (
        *(True, "strict"),
        "/ui",
    )
    assert cookie.value
    assert cookie.value not in token
    fleet = await browser.get("/ui/")
    assert "alpha" in fleet.document.text
    assert token not in fleet.body
    await check_roles(running)

    async def listed() -> list[str]:
        audit = await running.ask("ListAudit")
        return [each.result for each in audit.records if each.method == "Page/SignIn"]

    results = await until(listed, lambda results: len(results) == 2)
    audit = await browser.get("/ui/audit")
    check(audit)
    assert "✕ UNAUTHENTICATED" in audit.document.text
    assert "Clusters/CreateJoinToken" in audit.document.text
    assert "/ui/audit" in fleet.document.links("/ui/")
    # A page that is not there knows who asks for it.
    nowhere = await browser.get("/ui/binding?name=nobody")
    assert (nowhere.status, "/ui/audit" in nowhere.document.links("/ui/")) == (404, True)
    nothing = await browser.get("/ui/audit?credential=tok-x&at=1&id=1")
    assert "Nothing is recorded here" in nothing.document.text
    assert set(results) == {"UNAUTHENTICATED", "PERMISSION_DENIED"}
    await check_links(running, browser)
    stolen = dict(browser.cookies)
    refused = await browser.post("/ui/sign-out", {"form_secret": "guessed"})
    assert refused.status == 403
    gone = await browser.post("/ui/sign-out", {"form_secret": fleet.document.field("form_secret")})
    assert gone.status == 303
    after = Browser(address=running.plane.web_endpoint, cookies=stolen)
    assert (await after.get("/ui/")).status == 303


async def test_a_token_with_a_scope_sees_what_it_may(guarded: RunningControlPlane) -> None:
    running = guarded
    async with (
        running.connected("eu-1", report=report()),
        running.connected("us-1", report=report()),
    ):
        for name, namespace in (("web", "shop"), ("unseen", "secret"), ("unseen-too", "secret")):
            one = binding(name, 4 if name == "web" else 15)
            one.metadata.namespace = namespace
            answer = await scheduled(running, one)
        pages = {}
        for scope in ({}, {"namespaces": ["shop"]}, {"clusters": ["eu-*"]}):
            secret, _ = await made_token(running, role=access_pb2.ROLE_VIEWER, **scope)
            browser = Browser(address=running.plane.web_endpoint)
            await browser.post("/ui/sign-in", {"token": secret})
            pages["".join(scope)] = await everything(browser, "/ui/", {200, 403, 404})
            for path, within in (
                ("/ui/binding?namespace=secret&name=unseen", "namespaces"),
                ("/ui/cluster?name=us-1", "clusters"),
            ):
                assert (await browser.get(path)).status == (404 if within in scope else 200)
            decision = await browser.get(f"/ui/decision?id={answer.decision.id}")
            assert decision.status == (404 if scope else 200)
            fits = (await browser.get("/ui/ask?cpu=1")).document.text
            assert ("us-1" in fits) == ("clusters" not in scope)
    every, some = pages[""], pages["namespaces"]
    # Totals are true, names of others are not told.
    for path in ("/ui/", "/ui/cluster?name=eu-1"):
        assert bars(every[path]) == bars(some[path])
        assert any(
            "promised" in each and ", 0 cores promised" not in each for each in bars(some[path])
        )
    told = "".join(page.body for page in some.values())
    assert "shop/web" in told
    assert "unseen" not in told
    assert "secret/" not in told
    assert "us-1" not in pages["clusters"]["/ui/"].body


def bars(page: Answered) -> list[str]:
    """What its bars say."""
    labels = [each.attributes.get("aria-label", "") for each in page.document.all("svg")]
    return [each for each in labels if each.startswith("cpu: ")]


async def test_what_is_open_on_loopback_is_open_there_alone(running: RunningControlPlane) -> None:
    token = running.plane.admin_token_file.read_text(encoding="ascii").strip()
    browser = Browser(address=running.plane.web_endpoint)
    assert (await browser.get("/ui/")).status == 200
    assert (await browser.get("/ui/audit")).status == 303
    for header in (
        {"host": "evil.example"},
        {"x_forwarded_for": "10.0.0.1"},
        {"forwarded": "for=10.0.0.1"},
        {"host": "127.0.0.1.evil.example:80"},
    ):
        elsewhere = await browser.get("/ui/", **header)
        assert elsewhere.status == 303, header
        # Others could read it on the way.
        form = await browser.get("/ui/sign-in", **header)
        assert "A token cannot be given here" in form.document.text
        given = await browser.post("/ui/sign-in", {"token": token}, **header)
        assert (given.status, given.cookies) == (403, ())
    behind = {"host": "fleet.example", "x_forwarded_proto": "https"}
    over_tls = await browser.post("/ui/sign-in", {"token": token}, **behind)
    assert (over_tls.status, over_tls.cookies[0]["secure"]) == (303, True)
    assert (await browser.get("/ui/", **behind)).status == 200


async def test_a_preview_is_shown_to_all_and_committed_with_a_token(
    running: RunningControlPlane,
) -> None:
    token = running.plane.admin_token_file.read_text(encoding="ascii").strip()
    browser = Browser(address=running.plane.web_endpoint)

    async def form_secret() -> str:
        return (await browser.get("/ui/ask")).document.field("form_secret")

    async def previewed(text: str, **headers: str) -> Answered:
        fields = {"form_secret": await form_secret(), "text": text}
        return await browser.post("/ui/preview", fields, **headers)

    async with running.connected("alpha", report=report()):
        assert (await browser.post("/ui/preview", {"text": WORKLOAD})).status == 403
        assert (await previewed(WORKLOAD, origin="http://evil.example")).status == 403
        broken = await previewed("kind: [" + EVIL)
        assert (broken.status, "is not YAML" in broken.document.text) == (422, True)
        assert broken.document.all("textarea")[0].text == "kind: [" + EVIL
        check(broken)
        shown = await previewed(WORKLOAD)
        assert "SCHEDULED" in shown.document.text
        assert "Sign in" in shown.document.text
        assert "Commit exactly this" not in shown.document.text
        check(shown)
        example = (await browser.get("/ui/ask?example=yes")).document.all("textarea")[0].text
        assert "SCHEDULED" in (await previewed(example)).document.text
        await browser.post("/ui/sign-in", {"token": token})
        shown = await previewed(WORKLOAD)
        fields = {name: shown.document.field(name) for name in ("form_secret", "preview_token")}
        stranger = Browser(address=running.plane.web_endpoint)
        assert (await stranger.post("/ui/commit", fields)).status == 403
        await stranger.get("/ui/ask")
        own = {
            **fields,
            "form_secret": (await stranger.get("/ui/ask")).document.field("form_secret"),
        }
        without_token = await stranger.post("/ui/commit", own)
        assert (without_token.status, "It takes a token" in without_token.body) == (403, True)
        assert "Nothing has been scheduled" in (await browser.get("/ui/bindings")).document.text
        committed = await browser.post("/ui/commit", fields)
        assert committed.status == 303, committed.body
        listed = await running.ask("ListAudit")
        recorded = {
            (each.method, each.actor, each.address, *each.objects) for each in listed.records
        }
        assert ("Scheduling/Schedule", "admin", "127.0.0.1", "shop/web-deployment") in recorded
        decision = await browser.get(committed.headers["location"])
        assert "shop/web-deployment" in decision.document.text
        too_large = {"form_secret": fields["form_secret"], "text": "x" * 600_000}
        assert (await browser.post("/ui/preview", too_large)).status == 429


async def test_a_plan_is_drafted_looked_at_approved_and_stopped(
    running: RunningControlPlane,
) -> None:
    browser = Browser(address=running.plane.web_endpoint)
    assert "There is no plan" in (await browser.get("/ui/plans")).document.text
    token = running.plane.admin_token_file.read_text(encoding="ascii").strip()
    await browser.post("/ui/sign-in", {"token": token})

    async def sent(path: str, by: Browser = browser, **fields: str) -> Answered:
        secret = (await by.get("/ui/ask")).document.field("form_secret")
        return await by.post(path, {**fields, "form_secret": secret})

    async with (
        running.connected("eu-1", report=report()),
        running.connected("us-1", report=report()),
    ):
        await scheduled(running, binding("web", 4))
        assert (await sent("/ui/plans", clusters=" ")).status == 400
        assert (await sent("/ui/plans", clusters="nowhere")).status == 400
        drafted = await sent("/ui/plans", clusters="eu-1")
        assert (drafted.status, drafted.headers["location"]) == (303, "/ui/plan?id=1")
        draft = await browser.get("/ui/plan?id=1")
        check(draft)
        for text in ("draft", "2 of 2", "1 step", "shop/web", "us-1", "-2", "+2"):
            assert text in draft.document.text
        viewer = Browser(address=running.plane.web_endpoint)
        secret, _ = await made_token(running, role=access_pb2.ROLE_SCHEDULER)
        await viewer.post("/ui/sign-in", {"token": secret})
        for path in ("/ui/plans", "/ui/plan/approve", "/ui/plan/stop"):
            refused = await sent(path, viewer, id="1", clusters="eu-1", reason="no")
            assert (refused.status, "admin or operator" in refused.document.text) == (403, True)
        assert "Approve" not in (await viewer.get("/ui/plan?id=1")).document.text
        assert (await sent("/ui/plan/approve", id="1")).status == 303
        await until(
            lambda: browser.get("/ui/cluster?name=eu-1"),
            lambda page: "cordoned" in page.document.text,
        )
        assert (await sent("/ui/plan/approve", id="1")).status == 409
        assert (await sent("/ui/plan/stop", id="1")).status == 400
        assert (await sent("/ui/plan/stop", id="1", reason=EVIL)).status == 303
        stopped = await browser.get("/ui/plan?id=1")
        check(stopped)
        assert EVIL in stopped.document.text
        for path in ("/ui/plan?id=2", "/ui/plan?id=x", "/ui/plan"):
            assert (await browser.get(path)).status in (400, 404)
        assert (await sent("/ui/plans", kind="tidy", clusters="")).status == 400
        for kind, words in (("balance", "Tolerance"), ("consolidate", "Empties")):
            drafted = await sent("/ui/plans", kind=kind, clusters="")
            made = await browser.get(drafted.headers["location"])
            check(made)
            assert words in made.document.text
        plans = await browser.get("/ui/plans")
        check(plans)
        assert "empties" in plans.document.text


async def test_pages_hear_of_changes_for_longer_than_other_connections_last(
    fresh: RunningControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so many pages at once."""
    running, browser = fresh, Browser(address=fresh.plane.web_endpoint)
    monkeypatch.setattr(running.plane.parts.ui._pulse, "_tell_seconds", 0.01)
    monkeypatch.setattr(running.plane.parts.ui.shares, "limit", 1)
    monkeypatch.setattr(server, "LIFETIME_SECONDS", 0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", running.plane.web_endpoint.port)
    writer.write(b"GET /ui/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    heard: list[bytes] = []

    async def listen() -> bytes:
        heard.append(await reader.readline())
        return heard[-1]

    async with asyncio.timeout(PATIENCE_SECONDS):
        await until(listen, lambda line: b"retry:" in line)
        monkeypatch.setattr(server, "LIFETIME_SECONDS", PATIENCE_SECONDS)
        assert (await browser.get("/ui/events")).status == 429
        lasts_until = asyncio.get_running_loop().time() + 0.4
        await until(listen, lambda _: asyncio.get_running_loop().time() > lasts_until)
        await running.enrolled("alpha")
        await until(listen, lambda line: line == b"event: changed\n")
        running.plane.parts.ui.close()
        await until(listen, lambda line: line == b"0\r\n")
    writer.close()
    assert any(b"text/event-stream" in line for line in heard)


async def test_the_page_may_be_off(database_url: str, tmp_path: Path) -> None:
    async with running_control_plane(database_url, tmp_path, ui="off") as running:
        browser = Browser(address=running.plane.web_endpoint)
        assert [(await browser.get(path)).status for path in ("/", "/ui/", "/ui/sign-in")] == [
            404
        ] * 3
        assert (await browser.get("/readyz")).status == 200
