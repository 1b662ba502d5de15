"""What open pages load anew: drawn once for those who see as much, and never for others."""

from __future__ import annotations

import asyncio

import pytest

from federation.v1 import access_pb2
from federation.web.ui import fragments
from federation.web.ui.fragments import SHARED_SECONDS
from lab.browser import Answered, Browser
from lab.commanded_stores import CommandedStore
from lab.control_planes import RunningControlPlane, report
from lab.held_clocks import HeldClock
from tests.api.calls import scheduled
from tests.unit.web.test_ui import binding, made_token


async def test_pages_of_the_same_moment_share_one_drawing(
    held: RunningControlPlane,
    clock: HeldClock,
    commanded: CommandedStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fragments, "MOST_FRAGMENTS", 2)
    browser = Browser(address=held.plane.web_endpoint)

    async def drawn(path: str = "/ui/bindings") -> Answered:
        return await browser.get(path, fedsched_refresh="1")

    async def drawings() -> int:
        """How often the store was asked for a list of bindings."""
        return commanded.statements["bindings.page"]

    before = await drawings()
    pages = await asyncio.gather(*(drawn() for _ in range(20)))
    assert len({page.body for page in pages}) == 1
    assert await drawings() == before + 1
    clock.advance(SHARED_SECONDS - 0.1)
    await drawn()
    assert await drawings() == before + 1
    clock.advance(0.1)
    await drawn()
    assert await drawings() == before + 2
    # Who asks for something else shares nothing, and only so many are kept.
    for path in ("/ui/bindings?name=a", "/ui/bindings?name=b"):
        await drawn(path)
    assert await drawings() == before + 4
    await drawn("/ui/bindings?name=b")
    assert await drawings() == before + 4
    await drawn()
    assert await drawings() == before + 5
    # What takes long is not drawn twice, and outlasts whoever gives up.
    clock.advance(SHARED_SECONDS)
    commanded.stall()
    first = asyncio.create_task(drawn())
    address = held.plane.web_endpoint
    _, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(b"GET /ui/bindings HTTP/1.1\r\nHost: localhost\r\nfedsched-refresh: 1\r\n\r\n")
    await writer.drain()
    writer.close()
    clock.advance(100 * SHARED_SECONDS)
    second = asyncio.create_task(drawn())
    commanded.go_on()
    assert {(await first).status, (await second).status} == {200}
    assert await drawings() <= before + 7
    # What cannot be drawn is nobody else's answer.
    clock.advance(SHARED_SECONDS)
    commanded.is_reachable = False
    assert (await drawn()).status == 503
    commanded.is_reachable = True
    assert (await drawn()).status == 200


async def test_scopes_and_roles_are_kept_apart_while_pages_are_shared(
    guarded: RunningControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = guarded
    # For as long as this test, however slow the machine.
    monkeypatch.setattr(fragments, "SHARED_SECONDS", 3600.0)
    async with (
        running.connected("eu-1", report=report()),
        running.connected("us-1", report=report()),
    ):
        for namespace in ("shop", "secret"):
            one = binding(f"of-{namespace}", 3)
            one.metadata.namespace = namespace
            await scheduled(running, one)
        everywhere = Browser(address=running.plane.web_endpoint)
        token = running.plane.admin_token_file.read_text(encoding="ascii").strip()
        await everywhere.post("/ui/sign-in", {"token": token})
        scopes: tuple[dict[str, list[str]], ...] = (
            {},
            {},
            {"namespaces": ["shop"]},
            {"clusters": ["eu-*"]},
        )
        browsers = [everywhere]
        for scope in scopes:
            secret, _ = await made_token(running, role=access_pb2.ROLE_VIEWER, **scope)
            browsers.append(Browser(address=running.plane.web_endpoint))
            await browsers[-1].post("/ui/sign-in", {"token": secret})
        for path in ("/ui/", "/ui/bindings", "/ui/cluster?name=eu-1", "/ui/cluster?name=us-1"):
            admin, one, another, shop, europe = await asyncio.gather(
                *(each.get(path, fedsched_refresh="1") for each in browsers)
            )
            assert admin.status == one.status == 200
            # One drawing for both, without what is of one of them.
            assert one.body == another.body
            assert ("form_secret" in one.body, "set-cookie" in one.headers) == (False, False)
            assert one.body.startswith('<main id="view"')
            for text in ("secret/", "of-secret"):
                assert text not in shop.body, path
            # A binding names its clusters, whoever asks.
            assert path == "/ui/bindings" or "us-1</bdi>" not in europe.body
        bindings = await browsers[1].get("/ui/bindings", fedsched_refresh="1")
        assert "of-secret" in bindings.document.text
        assert (await browsers[4].get("/ui/cluster?name=us-1", fedsched_refresh="1")).status == 404
        audit = await everywhere.get("/ui/audit", fedsched_refresh="1")
        assert "Clusters/CreateJoinToken" in audit.document.text
        assert (await browsers[1].get("/ui/audit", fedsched_refresh="1")).status == 403
        stranger = Browser(address=running.plane.web_endpoint)
        for path in ("/ui/", "/ui/bindings", "/ui/audit"):
            assert (await stranger.get(path, fedsched_refresh="1")).status == 303
