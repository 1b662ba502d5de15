"""What the page is asked to change and does not is in the audit, and who may not look."""

from __future__ import annotations

from typing import Any

from federation.model.access import Role
from federation.v1 import access_pb2
from lab.browser import Answered, Browser
from lab.control_planes import RunningControlPlane, report
from tests.api.calls import audit_of
from tests.unit.web.test_ui import WORKLOAD, made_token


async def signed_in(running: RunningControlPlane, token: str) -> Browser:
    browser = Browser(address=running.plane.web_endpoint)
    assert (await browser.post("/ui/sign-in", {"token": token})).status == 303
    return browser


async def sent(browser: Browser, path: str, **fields: str) -> Answered:
    secret = (await browser.get("/ui/ask")).document.field("form_secret")
    return await browser.post(path, {"form_secret": secret, **fields})


async def said(running: RunningControlPlane) -> list[tuple[str, Any]]:
    records = await audit_of(running)
    return [
        (f"{record.method} {record.result}", list(record.objects))
        for record in reversed(records)
        if record.result != "OK"
    ]


async def test_changes_that_failed_and_who_may_not_are_recorded(
    guarded: RunningControlPlane,
) -> None:
    running = guarded
    token = running.plane.admin_token_file.read_text(encoding="ascii").strip()
    admin = await signed_in(running, token)
    assert (await sent(admin, "/ui/plan/approve", id="7")).status == 404
    hostile = "\0" + "x" * 100_000
    assert (await sent(admin, "/ui/plan/approve", id=hostile)).status == 400
    assert (await sent(admin, "/ui/plan/stop", form_secret="guessed")).status == 403
    # Neither of these is a change, nor a refusal.
    assert (await admin.get("/ui/plan?id=7")).status == 404
    assert (await admin.get("/ui/audit")).status == 200
    secret, _ = await made_token(running, role=access_pb2.ROLE_VIEWER)
    viewer = await signed_in(running, secret)
    assert (await sent(viewer, "/ui/commit", preview_token="a.b")).status == 403
    assert (await viewer.get("/ui/audit")).status == 403
    cut = "\N{REPLACEMENT CHARACTER}" + "x" * 394 + "..."
    assert await said(running) == [
        ("Rebalance/ApprovePlan NOT_FOUND", ["7"]),
        ("Rebalance/ApprovePlan INVALID_ARGUMENT", [cut]),
        ("Rebalance/StopPlan PERMISSION_DENIED", []),
        ("Scheduling/Schedule PERMISSION_DENIED", []),
        ("Access/ListAudit PERMISSION_DENIED", []),
    ]
    actors = [record.actor for record in await audit_of(running) if record.result != "OK"]
    assert [actor.partition(" ")[0] for actor in actors] == ["token"] * 2 + ["admin"] * 3


async def test_a_preview_of_another_namespace_is_not_committed(
    guarded: RunningControlPlane,
) -> None:
    running = guarded
    async with (
        running.connected("alpha", report=report()),
    ):
        token = running.plane.admin_token_file.read_text(encoding="ascii").strip()
        admin = await signed_in(running, token)
        shown = await sent(admin, "/ui/preview", text=WORKLOAD)
        preview = shown.document.field("preview_token")
        stranger = await signed_in(running, await running.token(Role.SCHEDULER, "bank"))
        refused = await sent(stranger, "/ui/commit", preview_token=preview)
        assert (refused.status, "is not its caller" in refused.document.text) == (403, True)
        assert (await sent(admin, "/ui/commit", preview_token=preview)).status == 303


async def test_a_bridge_commits_as_it_schedules_over_the_api(
    guarded: RunningControlPlane,
) -> None:
    async with guarded.connected("alpha", report=report()):
        secret, _ = await made_token(guarded, role=access_pb2.ROLE_BRIDGE)
        bridge = await signed_in(guarded, secret)
        preview = (await sent(bridge, "/ui/preview", text=WORKLOAD)).document.field("preview_token")
        assert (await sent(bridge, "/ui/commit", preview_token=preview)).status == 303
        (record,) = [
            record
            for record in await audit_of(guarded)
            if record.method == "Scheduling/Schedule" and record.result == "OK"
        ]
        assert record.actor.startswith("token")


async def test_the_limits_of_a_token_hold_on_the_page_too(guarded: RunningControlPlane) -> None:
    secret, _ = await made_token(guarded, role=access_pb2.ROLE_VIEWER, calls_per_second=3)
    viewer = await signed_in(guarded, secret)
    statuses = [(await viewer.get("/ui/bindings")).status for _ in range(30)]
    assert (statuses[0], 429 in statuses) == (200, True)


async def test_a_plan_is_not_for_who_sees_a_part_of_the_fleet(
    guarded: RunningControlPlane,
) -> None:
    viewer = await signed_in(guarded, await guarded.token(Role.VIEWER, "shop"))
    for path in ("/ui/plans", "/ui/plan?id=1", "/ui/what-if"):
        assert (await viewer.get(path)).status == 403, path
