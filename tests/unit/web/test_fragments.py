"""What open pages load anew: drawn once for those who see as much, and never for others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from federation.model.access import EVERYTHING, Role, Scope
from federation.model.errors import Unavailable
from federation.v1 import access_pb2
from federation.web.ui import fragments
from federation.web.ui.fragments import SHARED_SECONDS, Fragments, SharedView
from lab.browser import Browser
from lab.control_planes import report, running_control_plane
from tests.unit.web.test_ui import binding, made_token

FLEET = SharedView(path="/", query=b"", role=None, scope=EVERYTHING)


class Drawings:
    """A clock that is turned by hand, and drawings that say the how-manieth they are."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.drawn: list[SharedView] = []
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.failing = False

    def now(self) -> float:
        return self.seconds

    async def draw(self, view: SharedView) -> str:
        self.drawn.append(view)
        text = str(len(self.drawn))
        await self.may_end.wait()
        if self.failing:
            raise Unavailable("The database is away.")
        return text


async def test_pages_of_the_same_moment_share_one_drawing() -> None:
    drawings = Drawings()
    found = Fragments(drawings, drawings.draw)
    assert await asyncio.gather(*(found.find(FLEET) for _ in range(50))) == ["1"] * 50
    drawings.seconds += SHARED_SECONDS - 0.1
    assert await found.find(FLEET) == "1"
    drawings.seconds += 0.1
    assert await found.find(FLEET) == "2"
    # A clock that was set back makes nothing last.
    drawings.seconds -= 100
    assert await found.find(FLEET) == "3"


@pytest.mark.parametrize(
    "other",
    [
        FLEET._replace(path="/queue"),
        FLEET._replace(query=b"q=eu"),
        FLEET._replace(role=Role.VIEWER),
        FLEET._replace(scope=Scope(namespaces=("shop",))),
        FLEET._replace(scope=Scope(clusters=("eu-*",))),
        FLEET._replace(scope=Scope(cluster_labels=(("tier", "gold"),))),
    ],
)
async def test_who_sees_something_else_shares_nothing(other: SharedView) -> None:
    drawings = Drawings()
    found = Fragments(drawings, drawings.draw)
    assert await found.find(FLEET) == "1"
    assert await found.find(other) == "2"
    assert await found.find(FLEET) == "1"


async def test_what_takes_long_is_not_drawn_twice_and_outlasts_who_gives_up() -> None:
    drawings = Drawings()
    found = Fragments(drawings, drawings.draw)
    drawings.may_end.clear()
    first = asyncio.create_task(found.find(FLEET))
    await asyncio.sleep(0)
    drawings.seconds += 100 * SHARED_SECONDS
    second = asyncio.create_task(found.find(FLEET))
    await asyncio.sleep(0)
    first.cancel()
    drawings.may_end.set()
    assert await second == "1"
    assert await found.find(FLEET) == "2"


async def test_what_cannot_be_drawn_is_tried_again() -> None:
    drawings = Drawings()
    found = Fragments(drawings, drawings.draw)
    drawings.failing = True
    with pytest.raises(Unavailable):
        await found.find(FLEET)
    drawings.failing = False
    assert await found.find(FLEET) == "2"


async def test_only_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragments, "MOST_FRAGMENTS", 2)
    drawings = Drawings()
    found = Fragments(drawings, drawings.draw)
    views = [FLEET._replace(query=str(number).encode()) for number in range(3)]
    for each in views:
        await found.find(each)
    assert len(found._newest) == 2
    await found.find(views[0])
    assert drawings.drawn == [*views, views[0]]


async def test_scopes_and_roles_are_kept_apart_while_pages_are_shared(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # For as long as this test, however slow the machine.
    monkeypatch.setattr(fragments, "SHARED_SECONDS", 3600.0)
    async with (
        running_control_plane(database_url, tmp_path, ui="token") as running,
        running.connected("eu-1", report=report()),
        running.connected("us-1", report=report()),
    ):
        for namespace in ("shop", "secret"):
            request = binding(f"of-{namespace}", 3)
            request.binding.metadata.namespace = namespace
            await running.admin.call(running.admin.scheduling.Schedule, request)
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
